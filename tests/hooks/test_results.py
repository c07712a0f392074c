"""Results of writers as JSON, which travels from a worker to its driver."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from sluicegate.events.models import Assignment, FileInfo, FilesWritten
from sluicegate.writer_hooks import BadOption, WriterResult
from sluicegate.writer_hooks.publisher import encoded
from sluicegate.writer_hooks.region import Attempt, KafkaSettings, Region, file_event
from sluicegate.writer_hooks.writer import Written

REGION = Region(
    stream="flights",
    name="JFK",
    kafka=KafkaSettings(bootstrap_servers="localhost:9092"),
    assignment=Assignment(number=0, regions=("JFK",)),
)


def result() -> WriterResult:
    attempt = Attempt("i", 3, "w0")
    body = FilesWritten(
        format="paimon",
        format_version=1,
        location="file:///lake/t",
        schema_id=0,
        files=(FileInfo(path="town=Žďár/a.parquet", size=10, rows=2),),
    )
    event = file_event(REGION, attempt, body)
    return WriterResult(attempt, Written((event.envelope.id,), 1, 2, 10), tuple(encoded([event])))


def test_a_result_with_its_events_survives_as_json() -> None:
    written = result()
    assert WriterResult.from_json(written.to_json()) == written


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: found["attempt"].update(id="other"), "an event is one of another attempt"),
        (lambda found: found["attempt"].update(checkpoint=4), "an event is one of another attempt"),
        (lambda found: found["held"][0].update(body="{}"), "the body of an event is malformed"),
        (lambda found: found["held"][0]["headers"].update(ce_files="2"), "the body of an event is malformed"),
        (lambda found: found["held"][0]["headers"].pop("ce_id"), "an event is none of files"),
        (lambda found: found["held"][0].pop("headers"), "'headers'"),
        (lambda found: found["held"].append("text"), "zip"),
        (lambda found: found["written"].update(events=["other"]), "an event is one of another attempt"),
    ],
)
def test_an_event_that_its_driver_would_publish_in_vain_is_refused(
    change: Callable[[dict[str, Any]], object], said: str
) -> None:
    found = json.loads(result().to_json())
    change(found)
    with pytest.raises(BadOption, match=rf"this is no result of a writer \(.*{said}"):
        WriterResult.from_json(json.dumps(found))
