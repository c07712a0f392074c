"""The conversation of the documents is what the code makes, and each example fits its schema."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sluicegate.events.asyncapi import document
from sluicegate.events.codec import read_files, read_record
from sluicegate.events.envelope import Envelope, EventType, wire_type
from sluicegate.events.examples import CONVERSATION, EXAMPLES, conversation_document
from sluicegate.events.files import attempt_of, names_problem
from sluicegate.events.models import FilesWritten, StreamPolicy
from sluicegate.events.notifications import Committed, Notification, NotificationType, read_notification
from sluicegate.events.schemas import SUFFIX, render
from tests.events.test_recorded import RECORDED, as_message
from tests.hooks.replica import Judges

WIRES = [wire_type(kind).decode() for kind in (*EventType, *NotificationType)]


def test_the_replica_gives_the_answers_of_the_conversation() -> None:
    """Each message is read by its readers. What a registration is answered, the fold of the log decides."""
    judges = Judges()
    # The offsets of the conversation: it begins where its first registration has seen the end.
    judges.replica("flights").applied = 15
    policy = StreamPolicy(number=2, allowed_locations=("file:///lake/flights",))
    judges.apply(Envelope("p", EventType.STREAM_POLICY, "flights"), policy)
    answer = None
    for step in CONVERSATION:
        if step.topic == "events":
            assert answer is None, "the registration before was not answered"
            record, flaw = read_record(0, 0, step.message.headers, step.message.value)
            assert flaw is None
            assert record is not None
            answer = judges.apply(record.envelope, record.body)
            if record.envelope.writer:
                files = read_files(record.envelope, step.message.value)
                assert isinstance(files, FilesWritten)
                assert names_problem(attempt_of(record.envelope), files) is None
            continue
        found = read_notification(step.message.headers, step.message.value)
        assert isinstance(found, Notification)
        if found.type is NotificationType.REGISTRATION_ANSWERED:
            assert answer is not None
            plain = answer.model_dump() | {"reason": ""}
            assert plain == found.body.model_dump() | {"reason": ""}
            answer = None
        else:
            assert isinstance(found.body, Committed)
            assert judges.commit("flights").cut == found.body.cut


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    return {name: json.loads(text) for name, text in render().items()}


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
def test_examples_and_recorded_messages_fit_their_schema(wire: str, schemas: dict[str, Any]) -> None:
    schema = schemas[wire + SUFFIX]
    Draft202012Validator.check_schema(schema)
    kind = wire.removeprefix("sluicegate.").removesuffix(".v5")
    recorded = as_message((RECORDED / f"{kind}.txt").read_bytes())
    together = {**schemas[f"messages{SUFFIX}"], "required": [wire]}
    for message in (EXAMPLES[wire], recorded):
        value = json.loads(message.value)
        Draft202012Validator(schema).validate(value)
        Draft202012Validator(together).validate({wire: value})
        headers = {name: held.decode() for name, held in message.headers}
        Draft202012Validator(schemas[f"attributes{SUFFIX}"]).validate(headers)
    assert schema["examples"] == [json.loads(EXAMPLES[wire].value)]


@pytest.mark.slow
def test_the_schemas_have_no_unions(schemas: dict[str, Any]) -> None:
    for name, schema in schemas.items():
        assert "anyOf" not in json.dumps(schema), name
        assert "oneOf" not in json.dumps(schema), name
    assert "anyOf" not in json.dumps(document())


@pytest.mark.slow
def test_each_message_of_the_asyncapi_document_has_an_example() -> None:
    messages = document()["components"]["messages"].values()
    assert {each["name"] for each in messages} == {*WIRES} == EXAMPLES.keys()
    for each in messages:
        (example,) = each["examples"]
        Draft202012Validator(each["headers"]).validate(example["headers"])
        assert example["headers"]["ce_type"] == each["name"]


def test_the_document_has_the_bytes_of_each_message() -> None:
    found = conversation_document()["messages"]
    assert [each["value"].encode() for each in found] == [step.message.value for step in CONVERSATION]
    assert {each["topic"] for each in found} == {"events", "commits"}
