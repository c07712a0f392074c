"""The metadata file: what others put there stays, and its form follows the table's properties."""

from pathlib import Path
from typing import Any

import pytest

from sluicegate.lakes.iceberg.ancestry import DECISION, WATERMARK, Ancestry, marker_property
from sluicegate.lakes.iceberg.metadata import MAIN, Metadata, parse
from sluicegate.lakes.port import Published, Unproven
from tests.contracts.lakes.harness import USER, Fault, Stream, with_commits
from tests.contracts.lakes.iceberg_lake import IcebergLake, local


@pytest.mark.slow
def test_fields_that_are_not_known_stay(lake: IcebergLake) -> None:
    stream = with_commits(lake, 1)
    strange = {"a": [1, 2**62, 1.5, None, "ü"]}
    statistics = [{"snapshot-id": 1, "statistics-path": "x.puffin", "file-size-in-bytes": 3}]

    def change(fields: dict[str, Any]) -> None:
        fields["from-the-future"] = strange
        fields["snapshots"][0]["of-the-future"] = strange
        fields["statistics"] = statistics

    lake.edit(change)
    stream.commit(2, [2])
    fields = lake.fields()
    assert fields["from-the-future"] == strange
    assert fields["snapshots"][0]["of-the-future"] == strange
    assert fields["statistics"] == statistics
    assert "of-the-future" not in fields["snapshots"][1]


DELETES = {"write.metadata.previous-versions-max": "3", "write.metadata.delete-after-commit.enabled": "true"}


def metadata_files(lake: IcebergLake) -> set[str]:
    return {each.name for each in (lake.root / "metadata").glob("*.metadata.json")}


@pytest.mark.slow
def test_metadata_files_that_leave_the_log_are_deleted_where_the_table_says_so(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path, properties=DELETES)
    stream = Stream(lake)
    for decision in range(1, 8):
        stream.commit(decision, [decision])
        log = {Path(each["metadata-file"]).name for each in lake.fields()["metadata-log"]}
        assert metadata_files(lake) == {*log, Path(lake.metadata.location).name}
    assert len(metadata_files(lake)) == 4
    assert lake.ids() == list(range(1, 8))


@pytest.mark.slow
def test_a_log_of_metadata_files_deletes_nothing_else(tmp_path: Path) -> None:
    """The log is text: of a copy of the table it names files of the original, and it can be forged."""
    lake = IcebergLake(tmp_path, properties=DELETES)
    stream = with_commits(lake, 1)
    data = next(lake.root.rglob("*.parquet"))
    other = tmp_path / "other" / "metadata" / "00000-a.metadata.json"
    other.parent.mkdir(parents=True)
    other.write_text("{}")
    (snapshot_list,) = (lake.root / "metadata").glob("snap-*.avro")
    named = [f"file://{each}" for each in (data, other, snapshot_list)]

    def change(fields: dict[str, Any]) -> None:
        fields["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": name} for name in named]

    lake.edit(change)
    for decision in range(2, 8):
        stream.commit(decision, [decision])
    assert all(each.exists() for each in (data, other, snapshot_list))
    assert lake.ids() == list(range(1, 8))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.AWAY, Fault.LOST])
def test_a_commit_that_may_not_be_there_deletes_no_metadata_file(tmp_path: Path, fault: Fault) -> None:
    lake = IcebergLake(tmp_path, properties=DELETES)
    stream = with_commits(lake, 5)
    before = metadata_files(lake)
    faulty = Stream(lake, lake.committer(fault=fault))
    faulty.recorded = stream.recorded
    assert not isinstance(faulty.publish(6, faulty.head(6), [lake.event([6])]), Published)
    assert metadata_files(lake) >= before


@pytest.mark.slow
def test_compressed_metadata_is_read_and_written(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path, properties={"write.metadata.compression-codec": "gzip"})
    with_commits(lake, 2)
    location = lake.metadata.location
    assert location.endswith(".gz.metadata.json")
    raw = local(location).read_bytes()
    assert raw.startswith(b"\x1f\x8b")
    assert len(parse(location, raw).snapshots) == 2
    assert lake.ids() == [1, 2]


def test_the_watermark_is_found_below_foreign_snapshots() -> None:
    """And not below a commit of ours without one: else each commit would search the whole table."""

    def watermark(*summaries: dict[str, str]) -> int | None:
        parents = [{}, *({"parent-snapshot-id": number} for number in range(1, len(summaries)))]
        snapshots = [
            {"snapshot-id": number, "sequence-number": number, "summary": summary, **parents[number - 1]}
            for number, summary in enumerate(summaries, start=1)
        ]
        fields = {"format-version": 2, "table-uuid": "u", "location": "/t"}
        fields["current-snapshot-id"] = len(snapshots)
        return Ancestry(Metadata("/t/m.json", fields, snapshots, []), MAIN).watermark()

    ours, foreign = {DECISION: "1", WATERMARK: "5000"}, {"operation": "replace"}
    assert watermark(ours, foreign, {**foreign, WATERMARK: "x"}, foreign) == 5_000
    assert watermark(ours, {DECISION: "2"}, foreign) is None


@pytest.mark.slow
@pytest.mark.parametrize("value", ["", "x", "a:b:c:d:e", "0:1:2:3:4"])
def test_a_mark_that_was_changed_proves_nothing(lake: IcebergLake, value: str) -> None:
    stream = with_commits(lake, 1)
    stream.commit(2, [2], record=False)
    lake.foreign([100])
    lake.expire(1)
    lake.edit(lambda fields: fields["properties"].update({marker_property(USER, MAIN): value}))
    assert isinstance(stream.ask(2), Unproven)
    assert isinstance(stream.ask(3), Unproven)


@pytest.mark.slow
def test_times_do_not_fall_where_clocks_differ(lake: IcebergLake) -> None:
    later = 2 * 10**12
    lake.edit(lambda fields: fields.update({"last-updated-ms": later}))
    Stream(lake).commit(1, [1])
    fields = lake.fields()
    assert fields["snapshots"][0]["timestamp-ms"] == fields["last-updated-ms"] == later
