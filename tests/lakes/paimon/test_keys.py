"""Tables with keys: numbers, deletions, the fold, and which tables are in scope."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluicegate.lakes.file_options import FileOptions, SortColumn
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.port import BadFiles, SchemaMismatch, TableRefused
from sluicegate.lakes.sequence import END, STEP, Numbers, Upserts, checkpoint_numbers, raised_floor
from sluicegate.lakes.spooled import SpooledStorage, open_spooled
from sluicegate.lakes.storage import Storage
from tests.contracts.lakes.harness import Stream, written
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.paimon import reading
from tests.lakes.paimon.keyed import SCHEMA, KeyedLake
from tests.lakes.paimon.test_entries import edited


@pytest.fixture
def lake(tmp_path: Path) -> KeyedLake:
    return KeyedLake(tmp_path)


@pytest.fixture
def one(tmp_path: Path) -> KeyedLake:
    """A table with one bucket."""
    return KeyedLake(tmp_path, {"bucket": "1"})


def test_the_newest_row_of_a_key_wins(lake: KeyedLake) -> None:
    stream = Stream(lake)
    stream.add(1, lake.upsert([(1, "a"), (2, "a"), (1, "b")], [(3, "c")], place=1))
    assert lake.state() == {1: "b", 2: "a", 3: "c"}
    stream.add(2, lake.upsert([(1, "d"), (4, "d")], place=2))
    assert lake.state() == {1: "d", 2: "a", 3: "c", 4: "d"}


def test_a_checkpoint_that_is_written_before_the_one_before_is_committed_wins(lake: KeyedLake) -> None:
    """Each writer sees the table as it was before both."""
    first = lake.upsert([(key, "old") for key in range(100)], place=1)
    second = lake.upsert([(key, "new") for key in range(100)], place=2)
    stream = Stream(lake)
    stream.add(1, first)
    stream.add(2, second)
    assert set(lake.state().values()) == {"new"}


def test_both_may_be_in_one_commit_in_any_order(lake: KeyedLake) -> None:
    second = lake.upsert([(1, "new")], place=2)
    Stream(lake).add(1, second, lake.upsert([(1, "old"), (2, "old")], place=1))
    assert lake.state() == {1: "new", 2: "old"}


def test_a_deleted_row_stays_deleted(lake: KeyedLake) -> None:
    """Also where its deletion is alone in a file: a reader takes files without deletions as they are."""
    stream = Stream(lake)
    stream.add(1, lake.upsert([(key, "a") for key in range(10)], place=1))
    stream.add(2, lake.upsert([(3, "a", 0, "-D"), (4, "a", 0, "-U"), (5, "b", 0, "+U")], place=2))
    assert lake.state() == {key: "b" if key == 5 else "a" for key in range(10) if key not in (3, 4)}
    stream.add(3, lake.upsert([(3, "back")], place=3))
    assert lake.state()[3] == "back"


def test_an_entry_states_its_deletions(lake: KeyedLake) -> None:
    rows = [(key, "a", 0, "-D" if key % 3 else "+I") for key in range(30)]
    Stream(lake).add(1, lake.upsert(rows))
    entries = [entry["_FILE"] for entry in reading.entries(lake.root, 1)]
    assert sum(file["_DELETE_ROW_COUNT"] for file in entries) == 20
    assert len(entries) == 2


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ({"_DELETE_ROW_COUNT": None}, "does not state how many of its rows are deletions"),
        ({"_DELETE_ROW_COUNT": -1}, "-1 deletion"),
        ({"_DELETE_ROW_COUNT": 99}, "99 deletions, of"),
        ({"_MAX_SEQUENCE_NUMBER": STEP + 1}, "two are one"),
        ({"_LEVEL": 1}, "level 1 where 0 is expected"),
    ],
)
def test_a_wrong_entry_is_refused(one: KeyedLake, file: Mapping[str, Any], words: str) -> None:
    event = one.upsert([(key, "a") for key in range(40)])
    Stream(one).refuses(edited(event, **file), words)


@pytest.mark.parametrize("field", ["_MIN_KEY", "_MAX_KEY"])
def test_keys_that_cannot_be_read_are_refused(one: KeyedLake, field: str) -> None:
    event = one.upsert([(key, "a") for key in range(40)])
    Stream(one).refuses(edited(event, **{field: b"\0\0\0\0"}), "keys that cannot be read")


def test_a_range_of_keys_that_is_turned_around_is_refused(one: KeyedLake) -> None:
    event = one.upsert([(key, "a") for key in range(40)])
    stream = Stream(one)
    stream.add(1, event)
    (file,) = [entry["_FILE"] for entry in reading.entries(one.root, 1)]
    turned = {"_MIN_KEY": file["_MAX_KEY"], "_MAX_KEY": file["_MIN_KEY"]}
    with pytest.raises(BadFiles, match="lowest key above the highest"):
        stream.committer.check([edited(event, **turned)])


def test_each_partition_has_its_own_keys(tmp_path: Path) -> None:
    day = pa.field("day", pa.string(), nullable=False)
    lake = KeyedLake(tmp_path, {}, SCHEMA.append(day), primary_keys=["day", "id"], partition_keys=["day"])
    stream = Stream(lake)
    for place, value in ((1, "old"), (2, "new")):
        rows = [(key, f"{value}{at}", 0, "+I", f"d{at}") for at in range(3) for key in range(10 // place)]
        stream.add(place, lake.upsert(rows, place=place))
    found = {(row["day"], row["id"]): row["value"] for row in lake.read().to_pylist()}
    assert found == {
        (f"d{at}", key): f"{'new' if key < 5 else 'old'}{at}" for at in range(3) for key in range(10)
    }


@pytest.mark.parametrize(("engine", "value"), [("partial-update", "a"), ("aggregation", "a")])
def test_other_engines_merge_the_columns(tmp_path: Path, engine: str, value: str) -> None:
    options = {"merge-engine": engine, "rowkind.field": "op", "bucket": "1"}
    if engine == "aggregation":
        options |= {
            "fields.at.aggregate-function": "sum",
            "fields.value.aggregate-function": "last_non_null_value",
        }
        del options["rowkind.field"]
    lake = KeyedLake(tmp_path, options, kinds=None if engine == "aggregation" else True)
    stream = Stream(lake)
    stream.add(1, lake.upsert([(1, "a", 1), (1, None, 2), (2, None, 1)], place=1))
    stream.add(2, lake.upsert([(1, None, 4)], place=2))
    rows = {row["id"]: (row["value"], row["at"]) for row in lake.read().to_pylist()}
    assert rows == {1: (value, 7 if engine == "aggregation" else 4), 2: (None, 1)}


@pytest.mark.parametrize("kind", ["-U", "-D"])
def test_other_engines_take_no_deletions(tmp_path: Path, kind: str) -> None:
    lake = KeyedLake(tmp_path, {"merge-engine": "partial-update"})
    with pytest.raises(SchemaMismatch, match="cannot be taken back"):
        lake.upsert([(1, "a", 0, kind)])


def test_files_of_a_lost_table_are_taken_with_their_numbers(tmp_path: Path) -> None:
    lost, other = KeyedLake(tmp_path / "lost"), KeyedLake(tmp_path / "other")
    events = [lost.upsert([(1, "old"), (2, "old")], place=1), lost.upsert([(1, "x", 0, "-D")], place=2)]
    stream = Stream(other)
    for decision, event in enumerate(events, 1):
        stream.add(decision, other.maintenance().adopt(event, lost=True))
    assert other.state() == {2: "old"}


def test_an_uploader_may_get_the_files(lake: KeyedLake, tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    upserts = Upserts(numbers=checkpoint_numbers(0, 1))

    def wrap(storage: Storage) -> SpooledStorage:
        return SpooledStorage(storage, str(tmp_path / "spool"))

    writer = open_spooled(ADAPTER, lake.ref, None, "label", None, wrap, upserts)
    writer.write(lake.rows_of([(1, "a", 0, "-D")]))
    (file,) = writer.finish()
    assert (tmp_path / "spool" / file.path).exists()


# --- numbers ------------------------------------------------------------------------------------------


def numbers_in(lake: KeyedLake) -> list[int]:
    return sorted(
        number
        for path in lake.root.rglob("*.parquet")
        for number in pq.ParquetFile(path).read(["_SEQUENCE_NUMBER"]).column(0).to_pylist()
    )


def test_each_task_has_numbers_of_its_own(lake: KeyedLake) -> None:
    for task in range(3):
        lake.upsert([(key, "a") for key in range(50)], place=7, floor=10**12, part=(task, 3))
    first, width = 10**12 + 7 * STEP, STEP // 3
    assert numbers_in(lake) == [first + task * width + row for task in range(3) for row in range(50)]


def test_the_highest_number_is_that_of_all_buckets(lake: KeyedLake) -> None:
    assert ADAPTER.highest_number(lake.ref) == 0
    stream = Stream(lake)
    for place in (1, 2, 3):
        stream.add(place, lake.upsert([(key, "a") for key in range(20)], place=place))
        assert ADAPTER.highest_number(lake.ref) == max(numbers_in(lake)) == place * STEP + 19


def test_rows_beyond_the_numbers_of_a_task_are_refused(lake: KeyedLake) -> None:
    upserts = Upserts(numbers=Numbers(100, 110))
    assert written(ADAPTER, lake.ref, lake.rows_of([(key, "a") for key in range(10)]), upserts=upserts).files
    with pytest.raises(SchemaMismatch, match=r"has 11 rows more, and 10 numbers left.*more tasks"):
        written(ADAPTER, lake.ref, lake.rows_of([(key, "a") for key in range(11)]), upserts=upserts)


def test_a_writer_without_numbers_is_refused(lake: KeyedLake) -> None:
    with pytest.raises(TableRefused, match="each row needs a sequence number, and the driver has given none"):
        ADAPTER.open_writer(lake.ref, None)


def test_numbers_of_checkpoints_follow_each_other() -> None:
    found = [checkpoint_numbers(1234, place) for place in range(1, 10)]
    assert found[0].first == 1234 + STEP
    assert all(one.end == following.first for one, following in itertools.pairwise(found))


def test_numbers_end_by_a_refusal() -> None:
    floor = END - 3 * STEP
    assert checkpoint_numbers(floor, 2).end == END
    for place in (3, 4, 1 << 40):
        with pytest.raises(TableRefused, match="Copy the rows to a new table"):
            checkpoint_numbers(floor, place)


@pytest.mark.parametrize("place", [0, -1])
def test_a_checkpoint_before_the_base_has_no_numbers(place: int) -> None:
    with pytest.raises(TableRefused, match="before the base"):
        checkpoint_numbers(0, place)


@pytest.mark.parametrize(("number", "parts"), [(4, 4), (-1, 4), (0, 0), (0, STEP + 1)])
def test_a_part_that_there_is_not_is_refused(number: int, parts: int) -> None:
    with pytest.raises(TableRefused, match=rf"part {number} of {parts}"):
        checkpoint_numbers(0, 1).part(number, parts)


def test_parts_are_disjoint() -> None:
    whole = checkpoint_numbers(5, 1)
    parts = [whole.part(number, 4096) for number in range(4096)]
    assert parts[0].first == whole.first
    assert parts[-1].end == whole.end
    assert all(one.end == following.first for one, following in itertools.pairwise(parts))


def test_a_floor_rises_above_rows_of_other_writers_and_never_falls() -> None:
    assert raised_floor(100, 100 + 5 * STEP - 1, 5) == 100
    for highest in (100 + 5 * STEP, 100 + 5 * STEP + 7, 100 + 9 * STEP):
        raised = raised_floor(100, highest, 5)
        assert raised > 100
        assert checkpoint_numbers(raised, 5).first > highest
    assert raised_floor(100, 0, 5) == 100


# --- kinds and order ----------------------------------------------------------------------------------


def test_kinds_may_come_from_a_column_that_the_table_lacks(tmp_path: Path) -> None:
    lake = KeyedLake(tmp_path, kinds=False)
    stream = Stream(lake)
    rows = [(1, "a", 0, "+I"), (2, "a", 0, "+I"), (3, "a", 0, "-D")]
    stream.add(1, lake.upsert(rows, place=1, kind_column="op"))
    assert lake.state() == {1: "a", 2: "a"}
    stream.add(2, lake.upsert([(1, "a", 0, "-D"), (2, "b", 0, "+U")], place=2, kind_column="op"))
    assert lake.state() == {2: "b"}


def test_the_column_of_the_kinds_has_to_be_there(tmp_path: Path) -> None:
    lake = KeyedLake(tmp_path, kinds=False)
    rows = pa.RecordBatch.from_pydict({"id": [1], "value": ["a"]})
    with pytest.raises(SchemaMismatch, match="the column op has None, which is no kind of a row"):
        lake.upsert(rows, kind_column="op")


def test_two_columns_of_kinds_are_refused(lake: KeyedLake, tmp_path: Path) -> None:
    with pytest.raises(TableRefused, match=r"the option row\.kind\.column names kind, but .* rowkind\.field"):
        lake.upsert([(1, "a")], kind_column="kind")
    own = KeyedLake(tmp_path / "own", kinds=False)
    with pytest.raises(TableRefused, match=r"names value, which is a column of"):
        own.upsert([(1, "a")], kind_column="value")


def test_a_field_decides_the_order_and_tasks_may_share_buckets(tmp_path: Path) -> None:
    lake = KeyedLake(tmp_path, {"sequence.field": "at", "bucket": "1"})
    late = lake.upsert([(1, "late", 9), (2, "early", 1)], place=1, part=(0, 2))
    early = lake.upsert([(1, "early", 3), (2, "late", 4)], place=1, part=(1, 2))
    Stream(lake).add(1, early, late)
    assert lake.state() == {1: "late", 2: "late"}
    Stream(lake).add(2, lake.upsert([(1, "too old", 2)], place=2))
    assert lake.state()[1] == "late"


@pytest.mark.parametrize("kind", [None, "", "+i", "X", "-D "])
def test_an_unknown_kind_is_refused(lake: KeyedLake, kind: str | None) -> None:
    with pytest.raises(SchemaMismatch, match=r"the column op has .*, which is no kind of a row"):
        lake.upsert([(1, "a"), (2, "a", 0, kind)])


def test_a_null_key_is_refused(lake: KeyedLake) -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1, None], "value": ["a", "b"], "op": ["+I", "+I"]})
    with pytest.raises(SchemaMismatch, match="id"):
        lake.upsert(rows)


def test_a_sort_order_of_files_is_refused(lake: KeyedLake) -> None:
    with pytest.raises(TableRefused, match=r"the option file\.sort cannot be used"):
        lake.upsert([(1, "a")], files=FileOptions(sort=(SortColumn("value"),)))


# --- scope --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bucket": "-1"}, "dynamic buckets"),
        ({"bucket": "-2"}, "postponed buckets"),
        ({"merge-engine": "first-row"}, "merge-engine = first-row is not supported"),
        ({"merge-engine": "partial-update", "fields.at.sequence-group": "value"}, "a sequence group"),
        ({"merge-engine": "partial-update", "fields.at.aggregate-function": "sum"}, "aggregation alone"),
        ({"merge-engine": "aggregation", "fields.at.aggregate-function": "rbm64"}, "rbm64 is not supported"),
        ({"merge-engine": "aggregation", "fields.at.ignore-retract": "true"}, "ignore-retract"),
        ({"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}, "on-delete"),
        ({"ignore-delete": "true"}, "ignore-delete"),
        ({"deduplicate.ignore-delete": "true"}, "ignore-delete"),
        ({"ignore-update-before": "true"}, "ignore-update-before"),
        ({"changelog-producer": "input"}, "changelog-producer"),
        ({"deletion-vectors.enabled": "true"}, "deletion-vectors"),
        ({"bucket-function.type": "mod"}, "bucket-function"),
        ({"data-file.thin-mode": "true"}, "thin-mode"),
        ({"pk-clustering-override": "true"}, "pk-clustering"),
        ({"sequence.snapshot-ordering": "true"}, "snapshot-ordering"),
        ({"sequence.field": "nothing"}, "names the column nothing"),
        ({"sequence.field": "at,at"}, "names a column twice"),
        ({"rowkind.field": "at"}, "no column of texts"),
        ({"bucket-key": "value"}, "not in its primary key"),
        ({"file.format": "avro"}, "file.format = avro"),
    ],
)
def test_other_tables_are_refused_by_name(tmp_path: Path, options: Mapping[str, str], words: str) -> None:
    """By both halves, before a file is written."""
    lake = KeyedLake(tmp_path, options)
    with pytest.raises(TableRefused, match=words):
        ADAPTER.open_committer(lake.ref, "user")
    with pytest.raises(TableRefused, match=words):
        ADAPTER.open_writer(lake.ref, None, upserts=Upserts(numbers=Numbers(0, 10)))
    with pytest.raises(TableRefused, match=words):
        ADAPTER.keys(lake.ref)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (pa.float64(), "keys of the type DOUBLE"),
        (pa.binary(), "keys of the type"),
        (pa.timestamp("ns"), "keys of"),
    ],
)
def test_other_keys_are_refused(tmp_path: Path, kind: pa.DataType, words: str) -> None:
    lake = KeyedLake(tmp_path, schema=SCHEMA.set(0, pa.field("id", kind, nullable=False)))
    with pytest.raises(TableRefused, match=words):
        ADAPTER.open_committer(lake.ref, "user")


def test_a_key_with_the_column_of_the_kinds_is_refused(tmp_path: Path) -> None:
    """A deletion would have another key than its row, which would stay."""
    op = pa.field("op", pa.string(), nullable=False)
    lake = KeyedLake(tmp_path, schema=SCHEMA.set(3, op), primary_keys=["id", "op"])
    with pytest.raises(TableRefused, match=r"rowkind\.field names op, a column of its primary key"):
        ADAPTER.open_committer(lake.ref, "user")


def test_a_key_without_the_partition_is_refused(tmp_path: Path) -> None:
    lake = KeyedLake(tmp_path, partition_keys=["value"])
    with pytest.raises(TableRefused, match="lacks the partition column value"):
        ADAPTER.open_committer(lake.ref, "user")


@pytest.mark.parametrize(
    ("options", "is_ordered"),
    [({}, False), ({"sequence.field": "at"}, True), ({"merge-engine": "partial-update"}, False)],
)
def test_the_properties_of_a_table_in_scope(
    tmp_path: Path, options: Mapping[str, str], is_ordered: bool
) -> None:
    lake = KeyedLake(tmp_path, options)
    assert ADAPTER.keys(lake.ref) == (2, is_ordered)
    assert lake.committer().inspect().joined == "the table has 2 fixed buckets, which all writers share"


def test_a_table_without_keys_has_no_such_properties(tmp_path: Path) -> None:
    assert ADAPTER.keys(ADAPTER.parse_table(PaimonLake(tmp_path).location)) is None
