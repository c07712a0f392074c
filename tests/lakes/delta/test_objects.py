"""Delta in an object store whose requests fail: outcomes of commits, and versions that others overwrite."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from sluicegate.cli.checks_rest import check_stream
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.events.models import FilesWritten
from sluicegate.events.problems import Cause, CauseCode
from sluicegate.lakes.delta.adapter import ADAPTER
from sluicegate.lakes.delta.entries import FORMAT, FORMAT_VERSION
from sluicegate.lakes.delta.log import Log
from sluicegate.lakes.delta.maintenance import References
from sluicegate.lakes.port import (
    Absent,
    BadFiles,
    Conflict,
    Found,
    LakeUnavailable,
    NotPublished,
    OutcomeUnknown,
    Published,
    Refused,
    Unproven,
)
from sluicegate.lakes.storages import open_storage
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import USER, Lake, Stream
from tests.doubles.s3 import BUCKET, Effect, S3Double

URI = f"s3://{BUCKET}/warehouse/numbers"
ALWAYS = 1_000
FIRST = "00000000000000000001.json"
SECOND = "00000000000000000002.json"


class ObjectTable:
    """A table like a local one, with one integer column `id`."""

    def __init__(self, model: Path) -> None:
        self.ref = ADAPTER.parse_table(URI)
        ADAPTER.open_maintenance(self.ref).create_like(ADAPTER.parse_table(DeltaLake(model).location))

    def event(self, ids: Iterable[int]) -> FilesWritten:
        """Write rows with the writer half."""
        writer = ADAPTER.open_writer(self.ref, None)
        writer.write(pa.record_batch({"id": pa.array(list(ids), pa.int64())}))
        return FilesWritten(
            format=FORMAT,
            format_version=FORMAT_VERSION,
            location=writer.location,
            schema_id=writer.schema_id,
            files=tuple(writer.finish()),
        )

    def stream(self) -> Stream:
        """Open a committer with the environment as it is now."""
        return Stream(cast(Lake, self), ADAPTER.open_committer(self.ref, USER))

    def has(self, *events: FilesWritten) -> bool:
        """Return True if the log has the files of these events."""
        names = {file.path for event in events for file in event.files}
        references = References(Log(open_storage(URI)), names)
        references.refresh()
        return references.found == names

    def overwrite(self, version: int) -> None:
        """Replace a version, as a writer does that looks first and then renames by a copy."""
        name = f"_delta_log/{version:020d}.json"
        theirs = {"commitInfo": {"timestamp": 1, "operation": "WRITE", "engineInfo": "another writer"}}
        open_storage(URI).hint(name, json.dumps(theirs).encode())


@pytest.fixture
def table(s3_double: S3Double, tmp_path: Path) -> ObjectTable:
    return ObjectTable(tmp_path)


def versions(double: S3Double) -> list[int]:
    prefix = "warehouse/numbers/_delta_log/"
    return sorted(int(key.removeprefix(prefix)[:20]) for key in double.objects if key.startswith(prefix))


@pytest.mark.slow
def test_a_commit_is_one_file_of_the_log(s3_double: S3Double, table: ObjectTable) -> None:
    stream = table.stream()
    stream.commit(1, [1, 2])
    before = len(s3_double.requests)
    second = stream.commit(2, [3])
    assert versions(s3_double) == [0, 1, 2]
    puts = [key for method, key in s3_double.requests[before:] if method == "PUT"]
    assert [key.endswith((".parquet", SECOND)) for key in puts] == [True, True]
    successor = table.stream()
    assert successor.ask(2) == Found(second)
    assert isinstance(successor.ask(3), Absent)


@pytest.mark.slow
def test_a_version_is_not_read_again_while_it_has_not_changed(
    s3_double: S3Double, table: ObjectTable
) -> None:
    stream = table.stream()
    first, second = table.event([1]), table.event([2])
    made = stream.publish(1, stream.head(1), [first])
    assert isinstance(made, Published)
    stream.recorded = made.snapshot
    before = len(s3_double.requests)
    head = stream.head(2)
    made = stream.publish(2, head, stream.committer.check([second]))
    assert isinstance(made, Published)
    stream.recorded = made.snapshot
    stream.ask(3)
    requests = s3_double.requests[before:]
    assert not any(method == "GET" and key.endswith(FIRST) for method, key in requests)
    # The second version is read before its put alone, to see that it is not there.
    put = next(at for at, (method, key) in enumerate(requests) if method == "PUT" and key.endswith(SECOND))
    assert not any(method == "GET" and key.endswith(SECOND) for method, key in requests[put:])


@pytest.mark.slow
@pytest.mark.parametrize(
    "effect", [Effect.LOST_AFTER, Effect.ERROR_AFTER, Effect.LOST_BEFORE, Effect.UNAVAILABLE, Effect.CONFLICT]
)
def test_a_lost_answer_does_not_double_a_commit(
    s3_double: S3Double, table: ObjectTable, effect: Effect
) -> None:
    stream = table.stream()
    stream.commit(1, [1])
    fault = s3_double.strike(effect, SECOND)
    stream.commit(2, [2])
    assert fault.times == 0
    assert versions(s3_double) == [0, 1, 2]


@pytest.mark.slow
def test_no_answer_at_all_is_an_unknown_outcome(s3_double: S3Double, table: ObjectTable) -> None:
    stream = table.stream()
    event, head = table.event([1]), stream.head(1)
    s3_double.strike(Effect.UNAVAILABLE, FIRST, times=ALWAYS)
    outcome = stream.publish(1, head, [event])
    assert isinstance(outcome, OutcomeUnknown)
    assert "503 SlowDown" in outcome.reason
    s3_double.faults.clear()
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
    assert versions(s3_double) == [0, 1]


@pytest.mark.slow
def test_a_put_that_lands_later_is_found(
    s3_double: S3Double, table: ObjectTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = table.event([1])
    monkeypatch.setenv("AWS_TIMEOUT", "500 ms")
    stream = table.stream()
    head = stream.head(1)
    held = s3_double.strike(Effect.HELD_BEFORE, FIRST, times=ALWAYS)
    assert isinstance(stream.publish(1, head, [event]), OutcomeUnknown)
    held.release.set()
    s3_double.settle()
    assert isinstance(stream.ask(1), Found)
    assert versions(s3_double) == [0, 1]


@pytest.mark.slow
def test_a_put_that_lands_after_the_next_one_makes_no_second_version(
    s3_double: S3Double, table: ObjectTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision is published again meanwhile, with another time in its commit."""
    event = table.event([1])
    stream = table.stream()
    monkeypatch.setenv("AWS_TIMEOUT", "500 ms")
    late = table.stream()
    held = s3_double.strike(Effect.HELD_BEFORE, FIRST, times=4)
    assert isinstance(late.publish(1, late.head(1), [event]), OutcomeUnknown)
    made = stream.publish(1, stream.head(1), [event])
    assert isinstance(made, Published)
    held.release.set()
    s3_double.settle()
    assert late.ask(1) == Found(made.snapshot)
    assert versions(s3_double) == [0, 1]


@pytest.mark.slow
def test_requests_that_are_always_in_conflict_publish_nothing(
    s3_double: S3Double, table: ObjectTable
) -> None:
    stream = table.stream()
    event, head = table.event([1]), stream.head(1)
    s3_double.strike(Effect.CONFLICT, FIRST, times=ALWAYS)
    outcome = stream.publish(1, head, [event])
    assert isinstance(outcome, NotPublished)
    assert "409 ConditionalRequestConflict" in outcome.reason
    assert versions(s3_double) == [0]


@pytest.mark.slow
@pytest.mark.parametrize("effect", [Effect.LOST_BEFORE, Effect.CONFLICT, Effect.UNAVAILABLE])
def test_a_commit_that_another_one_overtakes_is_a_conflict(
    s3_double: S3Double, table: ObjectTable, effect: Effect
) -> None:
    stream, other = table.stream(), table.stream()
    event, head = table.event([1]), stream.head(1)
    theirs = table.event([7])
    fault = s3_double.strike(effect, FIRST)
    fault.meanwhile = lambda: other.publish(9, None, [theirs])
    assert isinstance(stream.publish(1, head, [event]), Conflict)
    assert not table.has(event)
    assert table.has(theirs)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_version_whose_place_cannot_be_proven_is_asked_for(
    s3_double: S3Double, table: ObjectTable, method: str
) -> None:
    """The requests after the put fail: the version before, and the hint of the last checkpoint."""
    stream = table.stream()
    stream.commit(1, [1])
    event, head = table.event([2]), stream.head(2)
    key = FIRST if method == "HEAD" else "_last_checkpoint"
    put = s3_double.strike(Effect.HELD_AFTER, SECOND)
    put.meanwhile = lambda: s3_double.strike(Effect.REJECTED, key, method=method, times=1)
    put.release.set()
    assert isinstance(stream.publish(2, head, [event]), OutcomeUnknown)
    assert isinstance(stream.ask(2), Found)
    assert versions(s3_double) == [0, 1, 2]


@pytest.mark.slow
def test_a_log_that_cannot_be_read_publishes_nothing(s3_double: S3Double, table: ObjectTable) -> None:
    stream = table.stream()
    stream.commit(1, [1])
    event, head = table.event([2]), stream.head(2)
    s3_double.strike(Effect.REJECTED, SECOND, method="GET", times=1)
    assert isinstance(stream.publish(2, head, [event]), NotPublished)
    s3_double.strike(Effect.REJECTED, FIRST, method="HEAD", times=1)
    with pytest.raises(LakeUnavailable):
        stream.ask(2)
    s3_double.strike(Effect.TRUNCATED, FIRST, method="GET", times=ALWAYS)
    with pytest.raises(LakeUnavailable):
        stream.committer.inspect()
    s3_double.faults.clear()
    assert isinstance(stream.publish(2, head, [event]), Published)


@pytest.mark.slow
def test_a_store_that_ignores_conditions_gets_no_commit(s3_double: S3Double, table: ObjectTable) -> None:
    event = table.event([1])
    stream = table.stream()
    s3_double.heeds_conditions = False
    outcome = stream.publish(1, stream.head(1), [event])
    assert isinstance(outcome, Refused)
    assert outcome.cause == Cause(code=CauseCode.NO_CONDITIONAL_PUT)
    assert versions(s3_double) == [0]


@pytest.mark.slow
@pytest.mark.parametrize("effect", [Effect.LOST_BEFORE, Effect.LOST_AFTER, Effect.UNAVAILABLE])
def test_data_files_are_uploaded_again(s3_double: S3Double, table: ObjectTable, effect: Effect) -> None:
    s3_double.strike(effect, ".parquet", times=2)
    event = table.event(range(100))
    (file,) = event.files
    assert len(s3_double.objects[f"warehouse/numbers/{file.path}"]) == file.size
    table.stream().committer.check([event])


@pytest.mark.slow
def test_a_data_file_that_cannot_be_uploaded_is_described_by_nobody(
    s3_double: S3Double, table: ObjectTable
) -> None:
    s3_double.strike(Effect.REJECTED, ".parquet", times=ALWAYS)
    with pytest.raises(LakeUnavailable, match="s3://lake/warehouse/numbers"):
        table.event([1])
    assert not any(key.endswith(".parquet") for key in s3_double.objects)


@pytest.mark.slow
def test_files_are_checked_by_size(s3_double: S3Double, table: ObjectTable) -> None:
    event = table.event([1])
    key = f"warehouse/numbers/{event.files[0].path}"
    whole = s3_double.objects[key]
    stream = table.stream()
    s3_double.objects[key] = whole[:-1]
    with pytest.raises(BadFiles, match=f"{len(whole) - 1} bytes instead of {len(whole)}"):
        stream.committer.check([event])
    del s3_double.objects[key]
    with pytest.raises(BadFiles, match="is not in s3://"):
        stream.committer.check([event])


@pytest.mark.slow
def test_a_version_that_another_writer_has_overwritten_is_noticed(table: ObjectTable) -> None:
    """It is not asked for again and not published again: the way out is a human's."""
    stream = table.stream()
    stream.commit(1, [1])
    stream.commit(2, [2])
    table.overwrite(2)
    answer = stream.ask(3)
    assert isinstance(answer, Unproven)
    assert answer.cause == Cause(code=CauseCode.RECORDED_OVERWRITTEN, snapshot=2)


@pytest.mark.slow
def test_a_version_that_is_overwritten_before_its_outcome_is_known(
    s3_double: S3Double, table: ObjectTable
) -> None:
    stream = table.stream()
    stream.commit(1, [1])
    event, head = table.event([2]), stream.head(2)
    fault = s3_double.strike(Effect.LOST_AFTER, SECOND)
    fault.meanwhile = lambda: table.overwrite(2)
    assert isinstance(stream.publish(2, head, [event]), Conflict)
    assert isinstance(stream.ask(2), Absent)


@pytest.mark.slow
def test_the_check_of_a_service_puts_a_file_and_removes_it(s3_double: S3Double, table: ObjectTable) -> None:
    settings = StreamSettings(table=URI, commit_user="stream-a", format="delta")
    before = set(s3_double.objects)
    findings, _ = check_stream("numbers", settings)
    assert [finding.verdict for finding in findings] == ["OK"] * 4
    assert set(s3_double.objects) == before


@pytest.mark.slow
def test_no_event_and_no_version_contains_credentials(s3_double: S3Double, table: ObjectTable) -> None:
    event = table.event([1])
    stream = table.stream()
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
    secrets = list(s3_double.environment().values())[-2:]
    written = [event.model_dump_json().encode(), *s3_double.objects.values()]
    assert not any(secret.encode() in text for secret in secrets for text in written)
    assert json.loads(event.model_dump_json())["location"] == URI
