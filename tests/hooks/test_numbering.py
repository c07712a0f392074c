"""Tables with keys: numbers of checkpoints through restarts, and one writer for each bucket; no server."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluicegate.events.codec import read_attributes, read_files
from sluicegate.events.envelope import Envelope
from sluicegate.events.models import FilesWritten, Position
from sluicegate.lakes.sequence import END, STEP, Numbers
from sluicegate.writer_hooks import (
    BadOption,
    Job,
    NotOurs,
    OpenCheckpoint,
    RegionDriver,
    WriterResult,
    driver,
)
from sluicegate.writer_hooks import job as jobs
from sluicegate.writer_hooks.commit_feed import CommitFeed
from sluicegate.writer_hooks.driver import DriverHeartbeats
from sluicegate.writer_hooks.driver_state import NewIncarnation, completion
from sluicegate.writer_hooks.numbering import keys_of, require_field_order, require_one_writer
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.region import Attempt, Registered
from sluicegate.writer_hooks.spark import incarnation
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation, IncarnationMarker
from sluicegate.writer_hooks.spark.incarnation import QueryRegistered, register_query
from sluicegate.writer_hooks.writer import Written
from tests.contracts.lakes.harness import Stream
from tests.hooks.locations import plan
from tests.hooks.options import OPTIONS
from tests.lakes.paimon.keyed import KeyedLake, Row


@pytest.fixture
def lake(tmp_path: Path) -> KeyedLake:
    return KeyedLake(tmp_path / "lake")


@pytest.fixture
def options(lake: KeyedLake) -> dict[str, str]:
    return OPTIONS | {"table": lake.location}


def files_of(*results: WriterResult) -> list[FilesWritten]:
    """The files that results describe, which their driver would publish."""
    found = []
    for message in (message for result in results for message in result.held):
        envelope = read_attributes(message.headers)
        assert isinstance(envelope, Envelope)
        body = read_files(envelope, message.value)
        assert isinstance(body, FilesWritten)
        found.append(body)
    return found


class Region:
    """Drivers of one region, each with a new incarnation at its committed position."""

    def __init__(self, lake: KeyedLake, options: Mapping[str, str], patch: pytest.MonkeyPatch) -> None:
        self.lake, self.options = lake, options
        self.base: Position | None = None
        self.stream = Stream(lake)
        self.decision = self.incarnations = 0
        self.before_answer: Any = lambda: None
        for name in ("start", "stop"):
            patch.setattr(CommitFeed, name, lambda *_: None)
            patch.setattr(DriverHeartbeats, name, lambda *_, **__: None)
        patch.setattr(DriverHeartbeats, "begin", lambda *_: None)
        patch.setattr(driver, "publish_completion", lambda *_: None)
        patch.setattr(driver, "begin_incarnation", lambda *_, **__: self._register())

    def _register(self) -> NewIncarnation:
        self.before_answer()
        self.incarnations += 1
        return NewIncarnation(Registered(f"driver-{self.incarnations}", "run"), self.base, "{}")

    def start(self) -> RegionDriver:
        made = RegionDriver(self.options)
        made.start()
        return made

    def commit(self, checkpoint: OpenCheckpoint, *results: WriterResult) -> None:
        """Commit a checkpoint, so that later drivers begin after it."""
        self.decision += 1
        self.stream.add(self.decision, *files_of(*results))
        self.base = Position(incarnation=checkpoint.incarnation, checkpoint=checkpoint.number, digest="d")

    def write(self, checkpoint: OpenCheckpoint, *rows: Row) -> WriterResult:
        return checkpoint.write("w", self.lake.rows_of(rows))


@pytest.fixture
def region(lake: KeyedLake, options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Region:
    return Region(lake, options, monkeypatch)


# --- plain Python -------------------------------------------------------------------------------------


def test_checkpoints_that_are_written_before_a_commit_follow_each_other(region: Region) -> None:
    made = region.start()
    opened = [made.begin() for _ in range(4)]
    results = [region.write(each, (1, f"v{each.number}")) for each in reversed(opened)]
    for checkpoint, result in zip(opened, reversed(results), strict=True):
        region.commit(checkpoint, result)
        assert region.lake.state() == {1: f"v{checkpoint.number}"}


def test_a_new_driver_begins_above_all_that_is_committed(region: Region) -> None:
    first = region.start()
    opened = [first.begin() for _ in range(5)]
    results = [region.write(each, (1, f"old {each.number}"), (2, "old")) for each in opened]
    for checkpoint, result in zip(opened[:3], results[:3], strict=True):
        region.commit(checkpoint, result)
    # The files of checkpoints 3 and 4 never count: a new incarnation begins after checkpoint 2.
    second = region.start()
    again = second.begin()
    assert again.number == 3
    assert again.numbers is not None
    assert again.numbers[0] > region.lake.adapter.highest_number(region.lake.ref)
    region.commit(again, region.write(again, (1, "new 3")))
    assert region.lake.state() == {1: "new 3", 2: "old"}
    fourth = second.begin()
    region.commit(fourth, region.write(fourth, (1, "new 4")))
    assert region.lake.state() == {1: "new 4", 2: "old"}


def test_the_table_is_read_after_the_registration_is_accepted(region: Region) -> None:
    """Until then, checkpoints of the driver before may be committed."""
    first = region.start()
    opened = first.begin()
    result = region.write(opened, (1, "old"))
    region.before_answer = lambda: region.commit(opened, result)
    second = region.start()
    region.before_answer = lambda: None
    following = second.begin()
    assert following.number == 1
    region.commit(following, region.write(following, (1, "new")))
    assert region.lake.state() == {1: "new"}


def test_rows_of_other_writers_are_followed_after_a_start(region: Region) -> None:
    region.lake.foreign_write(
        pa.Table.from_batches([region.lake.rows_of([(1, "backfill"), (2, "backfill")])])
    )
    region.stream = Stream(region.lake)
    opened = region.start().begin()
    region.commit(opened, region.write(opened, (1, "new")))
    assert region.lake.state() == {1: "new", 2: "backfill"}


def test_workers_get_the_numbers_as_json(region: Region) -> None:
    opened = region.start().begin()
    assert opened.numbers == (STEP, 2 * STEP)
    assert OpenCheckpoint.from_json(opened.to_json()) == opened
    result = region.write(opened, (1, "a"))
    assert WriterResult.from_json(result.to_json()) == result


def test_workers_write_the_parts_that_split_gives(region: Region) -> None:
    region.lake = lake = KeyedLake(region.lake.root.parent.parent / "wide", {"bucket": "5"})
    region.options, region.stream = {**region.options, "table": lake.location}, Stream(lake)
    made = region.start()
    opened = made.begin()
    rows = [(at % 50, f"v{at}") for at in range(300)]
    parts = opened.split(lake.rows_of(rows), 3)
    assert sorted(part.num_rows for part in parts)[-1] < 300 == sum(part.num_rows for part in parts)
    results = [opened.write(f"w{at}", part, part=(at, 3)) for at, part in enumerate(parts)]
    made.complete(opened, results, source_offsets={})
    region.commit(opened, *results)
    assert lake.state() == {key: f"v{250 + key}" for key in range(50)}


def test_no_rows_have_parts_too(region: Region) -> None:
    opened = region.start().begin()
    assert [part.num_rows for part in opened.split(region.lake.rows_of([]), 2)] == [0, 0]


def test_two_writers_of_one_bucket_are_refused(region: Region) -> None:
    made = region.start()
    opened = made.begin()
    rows = region.lake.rows_of([(key, "a") for key in range(20)])
    results = [opened.write(f"w{at}", rows, part=(at, 2)) for at in range(2)]
    with pytest.raises(NotOurs, match=r"w0 and w1 both have rows of bucket 0.*OpenCheckpoint\.split"):
        made.complete(opened, results, source_offsets={})


def test_two_writers_with_one_part_are_refused(region: Region) -> None:
    made = region.start()
    opened = made.begin()
    results = [opened.write(name, region.lake.rows_of([(1, "a")])) for name in ("one", "two")]
    with pytest.raises(NotOurs, match=r"one and two have sequence numbers in common.*part="):
        made.complete(opened, results, source_offsets={})


def test_two_writers_share_a_bucket_where_a_column_orders_the_rows(region: Region) -> None:
    region.lake = lake = KeyedLake(region.lake.root.parent.parent / "ordered", {"sequence.field": "at"})
    region.options, region.stream = {**region.options, "table": lake.location}, Stream(lake)
    made = region.start()
    opened = made.begin()
    late = opened.write("a", lake.rows_of([(1, "late", 9)]), part=(0, 2))
    early = opened.write("b", lake.rows_of([(1, "early", 3)]), part=(1, 2))
    made.complete(opened, [late, early], source_offsets={})
    region.commit(opened, late, early)
    assert lake.state() == {1: "late"}


def test_a_driver_ends_when_the_table_has_no_numbers_left(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(region.lake.adapter), "highest_number", lambda *_: END - 3 * STEP)
    made = region.start()
    made.begin()
    made.begin()
    with pytest.raises(Exception, match="Copy the rows to a new table"):
        made.begin()


def test_several_regions_are_refused(region: Region) -> None:
    region.options = {**region.options, "regions": "JFK,EWR", "assignment": "1"}
    with pytest.raises(BadOption, match=r"lists 2 regions, but the table .* has a primary key"):
        region.start()


def test_a_job_writes_above_all_that_is_committed(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    region.stream.add(1, region.lake.upsert([(1, "old"), (2, "old")], place=40))
    monkeypatch.setattr(
        jobs, "probe", lambda *_: type("Answer", (), {"committed": None, "source_offsets": None})
    )
    monkeypatch.setattr(jobs, "begin_incarnation", lambda *_, **__: region._register())
    job = Job(region.options, "backfill")
    assert job.start()
    region.stream.add(2, *files_of(job.write("w", region.lake.rows_of([(1, "new")]))))
    assert region.lake.state() == {1: "new", 2: "old"}


def test_a_table_without_keys_has_no_numbers(region: Region, tmp_path: Path) -> None:
    region.options = {**region.options, "table": str(tmp_path / "nothing")}
    assert region.start().begin().numbers is None


# --- results of one checkpoint ------------------------------------------------------------------------


def result_of(writer: str, numbers: tuple[int, int] | None = None, *buckets: int) -> WriterResult:
    return WriterResult(Attempt("i", 0, writer), Written(("e",), numbers=numbers, buckets=buckets))


def test_results_without_rows_or_keys_are_no_rivals() -> None:
    require_one_writer([result_of("a"), result_of("b"), result_of("c", (0, 5), 1), result_of("d", (5, 9), 2)])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_any_two_results_are_compared(order: Sequence[int]) -> None:
    found = [result_of("a", (0, 5), 1, 7), result_of("b", (5, 9), 2), result_of("c", (9, 12), 3, 7)]
    with pytest.raises(NotOurs, match=r"(a and c|c and a) both have rows of bucket 7"):
        require_one_writer([found[at] for at in order])


def test_each_way_to_complete_compares_them() -> None:
    two = [result_of("a", (0, 5), 1), result_of("b", (5, 9), 1)]
    with pytest.raises(NotOurs, match="bucket 1"):
        completion(("i", 0), two, predecessor=None, source_offsets="{}", watermark=None, listeners={})


# --- queries of Spark ---------------------------------------------------------------------------------


class Query:
    """A query that registers at each start. Its batches are planned by hand."""

    def __init__(self, root: Path, options: Mapping[str, str], patch: pytest.MonkeyPatch) -> None:
        self.root = root
        plan(root, 0)
        self.options = SinkOptions.parse({**options, "checkpointLocation": str(root)})
        self.checkpoint = CheckpointLocation(str(root))
        patch.setattr(incarnation, "_probe_new", lambda *_: None)
        patch.setattr(
            incarnation,
            "_restart",
            lambda _, __, marker, *___: QueryRegistered(marker, Registered(marker.incarnation, "run"), None),
        )

    def start(self) -> IncarnationMarker:
        """Return the marker that batches use, which is the one in the location."""
        found = register_query(self.options).marker
        assert found == self.checkpoint.marker()
        return found


@pytest.fixture
def query(tmp_path: Path, options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(tmp_path / "location", options, monkeypatch)


def first_number(marker: IncarnationMarker, batch: int) -> int:
    found = marker.numbers(batch)
    assert found is not None
    return found.first


def test_a_restart_stays_above_batches_that_are_planned_and_not_committed(
    query: Query, lake: KeyedLake
) -> None:
    """Batches 0 to 3 had no rows, and batch 4 is written and not committed: the table shows nothing of it."""
    marker = query.start()
    uncommitted = lake.upsert([(1, "batch 4")], place=5, floor=marker.floor or 0)
    plan(query.root, *range(1, 6))
    again = query.start()
    assert again.floor == marker.floor == 0
    later = lake.upsert([(1, "batch 5")], place=6, floor=again.floor or 0)
    assert first_number(again, 5) == 6 * STEP
    Stream(lake).add(1, later, uncommitted)
    assert lake.state() == {1: "batch 5"}


def test_the_floor_is_in_the_location_before_the_first_file(query: Query, lake: KeyedLake) -> None:
    Stream(lake).add(1, lake.upsert([(1, "old")], place=17))
    marker = query.start()
    assert marker.floor == 17 * STEP
    assert first_number(marker, 0) == 18 * STEP


def test_a_restart_goes_above_what_another_writer_has_committed(query: Query, lake: KeyedLake) -> None:
    marker = query.start()
    stream = Stream(lake)
    stream.add(1, lake.upsert([(1, "batch 0")], place=1))
    stream.add(2, lake.upsert([(1, "backfill")], place=9))
    plan(query.root, 1)
    again = query.start()
    assert first_number(again, 1) > 9 * STEP
    assert again.floor is not None
    assert marker.floor is not None
    assert again.floor > marker.floor
    stream.add(3, lake.upsert([(1, "batch 1")], place=2, floor=again.floor))
    assert lake.state() == {1: "batch 1"}


def test_the_floor_never_falls(query: Query, lake: KeyedLake) -> None:
    """Not even if the owner has rolled the table back."""
    Stream(lake).add(1, lake.upsert([(1, "old")], place=17))
    marker = query.start()
    lake.replace()
    assert query.start() == marker


def test_a_later_incarnation_begins_at_its_own_first_batch(query: Query, lake: KeyedLake) -> None:
    plan(query.root, *range(1, 8))
    marker = IncarnationMarker(query="q7", incarnation="i", first=7, stream="flights", region="JFK")
    query.checkpoint.write_marker(marker)
    Stream(lake).add(1, lake.upsert([(1, "old")], place=3))
    found = query.start()
    assert found.floor == 3 * STEP
    assert found.numbers(7) == Numbers(4 * STEP, 5 * STEP)


def test_spark_alone_is_refused_without_a_column_of_order(options: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"has a primary key and no sequence\.field.*ForeachBatch"):
        require_field_order(SinkOptions.parse(options, located=False))
    ordered = KeyedLake(tmp_path / "ordered", {"sequence.field": "at"})
    require_field_order(SinkOptions.parse(options | {"table": ordered.location}, located=False))


def test_options_of_a_table_with_keys(options: dict[str, str]) -> None:
    parsed = SinkOptions.parse(options | {"row.kind.column": "op"}, located=False)
    assert keys_of(parsed) == (2, False)
    assert parsed.target().upserts == ("op", None)
    assert replace(parsed, kind_column=None).target().upserts is None


def test_the_column_of_the_kinds_is_for_tables_with_keys() -> None:
    parsed = SinkOptions.parse(OPTIONS | {"row.kind.column": "op", "format": "delta"}, located=False)
    assert keys_of(parsed) is None
    from sluicegate.lakes.file_options import open_writer

    target = parsed.target()
    with pytest.raises(Exception, match=r"row\.kind\.column is for tables with a primary key"):
        open_writer(target.adapter, target.table, None, upserts=target.upserts)
