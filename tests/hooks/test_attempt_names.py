"""Each try of a writer has an id and file names of its own, which the events that list the files carry."""

from pathlib import Path

import pyarrow as pa

from sluicegate.events.files import HEADROOM, attempt_of, names_problem
from sluicegate.events.models import Assignment, FileInfo, FilesWritten
from sluicegate.lakes.registry import adapter
from sluicegate.writer_hooks.region import Attempt, KafkaSettings, Region, files_written, mark_of
from tests.integration.job import SCHEMA, create_table

REGION = Region(
    "flights", "EWR", KafkaSettings(bootstrap_servers="nowhere:1"), Assignment(number=0, regions=("EWR",))
)


def written(table: str, attempt: Attempt) -> FilesWritten:
    files: list[FileInfo] = []
    for number in range(3):
        writer = adapter("paimon").open_writer(
            adapter("paimon").parse_table(table), None, mark_of(REGION, attempt)
        )
        rows = pa.table({"id": [number], "origin": ["x"], "at": [0]}).cast(SCHEMA)
        for batch in rows.to_batches():
            writer.write(batch)
        files += writer.finish()
    return FilesWritten(
        format="paimon",
        format_version=adapter("paimon").format_version,
        location=writer.location,
        schema_id=writer.schema_id,
        files=tuple(files),
    )


def test_two_tries_of_a_task_share_no_name(tmp_path: Path) -> None:
    table = create_table(tmp_path)
    first, second = (Attempt("q.0", 7, "p00003") for _ in range(2))
    ours = files_written(REGION, first, written(table, first), 10**6)
    theirs = files_written(REGION, second, written(table, second), 10**6)
    assert first.id != second.id
    for event, other in ((ours[0], theirs[0]), (theirs[0], ours[0])):
        assert isinstance(event.body, FilesWritten)
        assert names_problem(attempt_of(event.envelope), event.body) is None
        assert names_problem(attempt_of(other.envelope), event.body) is not None


def test_the_parts_of_an_attempt_share_its_id(tmp_path: Path) -> None:
    attempt = Attempt("q.0", 7, "p00003")
    body = written(create_table(tmp_path), attempt)
    size = len(body.model_dump_json())
    events = files_written(REGION, attempt, body, HEADROOM + size // 2)
    assert len(events) > 1
    assert len({event.envelope.id for event in events}) == len(events)
    assert {event.envelope.attempt for event in events} == {attempt.id}
    for event in events:
        assert isinstance(event.body, FilesWritten)
        assert names_problem(attempt_of(event.envelope), event.body) is None
