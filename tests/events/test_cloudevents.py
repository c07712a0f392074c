"""The CloudEvents SDK reads each of our messages from its headers and its value."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event, to_binary_event
from cloudevents.core.v1.event import CloudEvent

from sluicegate.events.codec import Flaw, read_attributes
from sluicegate.events.encoding import Message
from tests.events.examples import TIME
from tests.events.test_recorded import RECORDED, as_message


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.txt")), ids=lambda path: path.stem)
def test_the_sdk_reads_a_recorded_message(path: Path) -> None:
    message = as_message(path.read_bytes())
    event = from_binary_event(KafkaMessage(dict(message.headers), message.key, message.value))
    assert isinstance(event, CloudEvent)
    headers = {name: value.decode() for name, value in message.headers}
    assert event.get_id() == headers["ce_id"]
    assert event.get_type() == headers["ce_type"]
    assert event.get_source() == headers["ce_source"]
    assert event.get_datacontenttype() == "application/json"
    assert event.get_time() == datetime.fromtimestamp(TIME / 1000, UTC)
    assert event.get_data() == json.loads(message.value)
    extensions = {f"ce_{name}": value for name, value in event.get_attributes().items()}
    for name in ("ce_stream", "ce_region", "ce_incarnation", "ce_checkpoint", "ce_writer", "ce_attempt"):
        assert extensions.get(name) == headers.get(name)


def test_an_event_that_the_sdk_writes_is_read() -> None:
    message = as_message((RECORDED / "files.written.txt").read_bytes())
    event = from_binary_event(KafkaMessage(dict(message.headers), message.key, message.value))
    written = to_binary_event(event)
    again = Message(b"", written.value, list(written.headers.items()))
    read = read_attributes([(name, value) for name, value in again.headers if name != "ce_partitionkey"])
    assert not isinstance(read, Flaw)
    assert read == read_attributes(message.headers)
    assert json.loads(written.value) == json.loads(message.value)
