"""Iceberg in an object store: requests that fail, locations of others, and what may be announced."""

from pathlib import Path

import pytest

from sluicegate.lakes import parquet as parquet_files
from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.iceberg.layout import path_in
from sluicegate.lakes.port import Found, LakeUnavailable, Published, TableRefused
from tests.contracts.lakes.harness import USER
from tests.contracts.lakes.iceberg_rest_lake import iceberg_of
from tests.doubles.s3 import BUCKET, Effect, S3Double
from tests.lakes.iceberg import rich
from tests.lakes.iceberg.objects import FOLDER, URI, ObjectTable
from tests.lakes.outcomes import is_refused

pytestmark = pytest.mark.seam

ALWAYS = 1_000
SUFFIXES = (".avro", ".metadata.json")
"""Ends of the keys of a commit's files: manifests and lists, and the metadata."""


@pytest.fixture
def table(s3_double: S3Double, tmp_path: Path) -> ObjectTable:
    (tmp_path / "model").mkdir()
    return ObjectTable(tmp_path, s3_double)


def parquet(double: S3Double) -> list[str]:
    return [key for key in double.objects if key.endswith(".parquet")]


@pytest.mark.slow
def test_a_file_that_is_not_whole_in_the_store_is_not_announced(
    s3_double: S3Double, table: ObjectTable
) -> None:
    def cut() -> None:
        (key,) = parquet(s3_double)
        s3_double.objects[key] = s3_double.objects[key][:-1]

    held = s3_double.strike(Effect.HELD_AFTER, ".parquet")
    held.meanwhile = cut
    held.release.set()
    with pytest.raises(LakeUnavailable, match="bytes instead of"):
        table.event([1])


@pytest.mark.slow
def test_large_attempts_do_not_stay_in_memory(
    s3_double: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest partitions are uploaded first, and get another file for their next rows."""
    (tmp_path / "model").mkdir()
    monkeypatch.setattr(parquet_files, "BUFFER_ROWS", 24)
    monkeypatch.setattr(parquet_files, "HELD_BYTES", 10_000)
    table = ObjectTable(tmp_path, s3_double, rich.RICH, rich.spec("buckets"))
    writer = table.adapter.open_writer(table.ref, None)
    for _ in range(4):
        writer.write(rich.rows(range(24)))
        assert sum(opened.sink.tell() for opened in writer._open.values()) <= 10_000
    assert parquet(s3_double)
    infos = list(writer.finish())
    assert sum(info.rows for info in infos) == 4 * 24
    assert sorted(parquet(s3_double)) == sorted(f"{FOLDER}2/{info.path}" for info in infos)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "effect", [Effect.LOST_BEFORE, Effect.LOST_AFTER, Effect.UNAVAILABLE, Effect.ERROR_AFTER]
)
def test_a_commit_succeeds_after_requests_that_failed(
    s3_double: S3Double, table: ObjectTable, effect: Effect, suffix: str
) -> None:
    stream = table.stream()
    stream.commit(1, [1])
    event, head = table.event([2]), stream.head(2)
    s3_double.strike(effect, suffix, times=2)
    assert isinstance(stream.publish(2, head, [event]), Published)
    assert table.snapshots() == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("effect", [Effect.REJECTED, Effect.LOST_AFTER])
def test_a_commit_whose_files_cannot_be_put_leaves_nothing(
    s3_double: S3Double, table: ObjectTable, effect: Effect, suffix: str
) -> None:
    """Also if a file is there, and only the answers are lost."""
    stream = table.stream()
    stream.commit(1, [1])
    event, head = table.event([2]), stream.head(2)
    before = set(s3_double.objects)
    s3_double.strike(effect, suffix, times=ALWAYS)
    assert is_refused(stream.publish(2, head, [event]), again=True)
    assert set(s3_double.objects) == before
    s3_double.faults.clear()
    assert isinstance(stream.publish(2, head, [event]), Published)
    assert table.snapshots() == [1, 2]


@pytest.mark.slow
def test_a_commit_whose_put_lands_again_later_is_there_once(
    s3_double: S3Double, table: ObjectTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that was given up puts the same content under the same name."""
    event = table.event([1])
    monkeypatch.setenv("AWS_TIMEOUT", "500 ms")
    stream = table.stream()
    held = [s3_double.strike(Effect.HELD_BEFORE, suffix) for suffix in SUFFIXES]
    stream.add(1, event)
    after = dict(s3_double.objects)
    for each in held:
        each.release.set()
    s3_double.settle()
    assert s3_double.objects == after
    assert isinstance(stream.ask(1), Found)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("effect", [Effect.REJECTED, Effect.TRUNCATED])
def test_metadata_that_cannot_be_read_publishes_nothing(
    s3_double: S3Double, table: ObjectTable, effect: Effect, suffix: str
) -> None:
    stream = table.stream()
    stream.commit(1, [1])
    event, head = table.event([2]), stream.head(2)
    stream.commit(2, [7], record=False)
    late = table.stream()
    s3_double.strike(effect, suffix, method="GET", times=ALWAYS)
    if suffix == ".avro":
        outcome = late.publish(3, late.recorded, [event])
        assert is_refused(outcome, again=True), outcome
    else:
        with pytest.raises(LakeUnavailable):
            table.stream()
    s3_double.faults.clear()
    assert head is not None
    assert table.snapshots() == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["s3a", "s3n", "S3A"])
def test_a_table_of_hadoop_is_in_the_same_store(table: ObjectTable, scheme: str) -> None:
    """Spark writes the locations of its file system into the table, and reads them from there."""
    stream = table.stream()
    first = table.event([1])
    stream.add(1, first)
    theirs = f"{scheme}://{BUCKET}/{FOLDER}2"
    table.edit(location=theirs)
    stream = table.stream()
    event = table.event([2])
    assert event.location == f"{URI}2"
    assert path_in(event.files[0].metadata) == f"{theirs}/{event.files[0].path}"
    stream.add(2, event)
    assert table.snapshots() == [1, 2]
    paths = [file.path for each in (first, event) for file in each.files]
    maintenance = table.adapter.open_maintenance(table.ref)
    assert set(maintenance.file_status(paths).values()) == {FileStatus.REFERENCED}


@pytest.mark.s3
def test_a_store_that_the_catalog_does_not_use_gets_no_commit(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have a bucket of the same name. A REST catalog would take the commit without a look."""
    lake = iceberg_of("iceberg-rest-on-s3", request, tmp_path)
    ref = lake.adapter.parse_table(lake.location)
    lake.adapter.open_committer(ref, USER).close()
    with S3Double() as other:
        for name, value in other.environment().items():
            monkeypatch.setenv(name, value)
        with pytest.raises(TableRefused, match="is not in the storage that this process reaches"):
            lake.adapter.open_committer(ref, USER)
