"""Files of other programs: neutral fields are enough, and no claim about a file is believed."""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluicegate.events.models import CURRENT_SCHEMA, FileInfo, FilesWritten
from sluicegate.lakes.port import Absent, BadFiles
from tests.contracts.lakes.harness import Stream
from tests.lakes.plain_files import ROWS, Place, commit, event, place, rows, write
from tests.lakes.values import FORMATS

pytestmark = pytest.mark.slow

QUESTIONS = {
    "id = 2": [2],
    "id > 2": [3],
    "name IS NULL": [2],
    "name > 'p'": [3],
    "amount < 0": [2],
    "amount = 1.5": [1],
    "\"at\" >= TIMESTAMPTZ '2024-05-17 11:00:00+00'": [2],
    "score = 'nan'::DOUBLE": [2],
    "score > 5": [2],
    "score < 0": [3],
    "region = 'EU'": [1, 2, 3],
    "region = 'US'": [],
}


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place(request.param, tmp_path / "t")


@pytest.mark.parametrize("decimals", [False, True])
def test_files_of_plain_pyarrow_are_committed(table: Place, decimals: bool) -> None:
    # A column with NaN has no statistics: readers take those for bounds of NaN, too (docs/writers/files.md).
    bounded = [name for name in table.columns(rows()).column_names if name != "score"]
    options: dict[str, Any] = {
        "row_group_size": 2,
        "store_decimal_as_integer": decimals,
        "write_statistics": bounded,
    }
    commit(table, event(table, write(table, rows(), **options)))
    assert {where: table.read(where) for where in QUESTIONS} == QUESTIONS


def test_bounds_of_a_part_of_the_rows_are_left_out(table: Place) -> None:
    """The library adds up the nulls, and joins the bounds, of those row groups alone that have them."""
    path = f"{table.folder}data-0-parts.parquet"
    (table.root / path).parent.mkdir(parents=True, exist_ok=True)
    one, other = table.columns(rows(ROWS[0])), table.columns(rows((9, None, *ROWS[0][2:])))
    long = rows((10, "z" * 5_000, *ROWS[0][2:]))
    with pq.ParquetWriter(table.root / path, one.schema, store_schema=False) as parquet:
        for part in (one, other, table.columns(long)):
            parquet.write_table(part)
    size = (table.root / path).stat().st_size
    commit(table, event(table, FileInfo(path=path, size=size, rows=3, partition={"region": "EU"})))
    assert table.read("name > 'y'") == [10]
    assert table.read("name IS NULL") == [9]
    assert "name" not in table.bounded()


def test_files_with_and_without_metadata_are_in_one_commit(table: Place) -> None:
    ours = table.lake.write(*rows().to_batches())
    mixed = ours.model_copy(update={"files": (*ours.files, write(table, rows()))})
    commit(table, mixed, event(table, write(table, rows())))
    assert len(table.read("true")) == 3 * len(ROWS)


def _changed(**fields: object) -> Callable[[Place], FileInfo]:
    return lambda table: write(table, rows()).model_copy(update=fields)


def _more(table: Place, field: str) -> FileInfo:
    file = write(table, rows())
    return file.model_copy(update={field: getattr(file, field) + 1})


def _of(change: Callable[[pa.Table], pa.Table], **options: Any) -> Callable[[Place], FileInfo]:
    return lambda table: write(table, change(rows()), **options)


def _cast(name: str, kind: pa.DataType) -> Callable[[Place], FileInfo]:
    def change(data: pa.Table) -> pa.Table:
        at = data.schema.get_field_index(name)
        return data.set_column(at, name, data.column(name).cast(kind, safe=False))

    return _of(change)


def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Place], FileInfo]:
    def made(table: Place) -> FileInfo:
        file = write(table, rows())
        content = change((table.root / file.path).read_bytes())
        (table.root / file.path).write_bytes(content)
        return file.model_copy(update={"size": len(content)})

    return made


def _flipped(raw: bytes) -> bytes:
    """Return a file with 40 bytes of its footer changed."""
    start = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    return raw[:start] + bytes(each ^ 0xFF for each in raw[start : start + 40]) + raw[start + 40 :]


def _elsewhere(table: Place) -> FileInfo:
    """Write a file whose footer has the values in another one."""
    file = write(table, rows())
    path = table.root / file.path
    footer, content = pq.read_metadata(path), path.read_bytes()
    footer.set_file_path("data-0-other.parquet")
    footer.write_metadata_file(path)
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[:start] + path.read_bytes()[4:])
    return file.model_copy(update={"size": path.stat().st_size})


def _miscounted(table: Place) -> FileInfo:
    """Write a file whose footer has another number of rows than its row group."""
    file = write(table, rows(*ROWS[:1] * 5_000))
    path = table.root / file.path
    content = path.read_bytes()
    # In Thrift's compact form: a field of 64 bits with the number, and the list of row groups.
    assert content.count(b"\x16\x90\x4e\x19") == 1
    path.write_bytes(content.replace(b"\x16\x90\x4e\x19", b"\x16\x92\x4e\x19"))
    return file.model_copy(update={"rows": 5_001})


LIES: dict[str, tuple[Callable[[Place], FileInfo], str]] = {
    "missing": (
        _changed(path="region=EU/bucket-0/data-0-x.parquet"),
        "is not in|does not start|no data file",
    ),
    "size": (lambda table: _more(table, "size"), "bytes instead of"),
    "rows": (lambda table: _more(table, "rows"), "rows by its footer, and 4 by the event"),
    "no rows": (_of(lambda data: data.slice(0, 0)), "has no rows. Leave it out of the event"),
    "partition": (_changed(partition={"region": "US"}), "is in the partition|no data file in the folder"),
    "no partition": (_changed(partition={}), "is in the partition|partition values"),
    "strange partition": (
        _changed(partition={"region": "EU", "x": "1"}),
        "is in the partition|partition values",
    ),
    "lacking column": (
        _of(lambda data: data.drop_columns(["name"])),
        "of the table: it lacks the columns .'name'",
    ),
    "more columns": (_of(lambda data: data.append_column("more", data.column("id"))), "has .'more'"),
    "values elsewhere": (_elsewhere, "in another file. Write them into this one"),
    "row groups": (_miscounted, "rows do not add up to its 5001. Write it again"),
    "order": (
        _of(lambda data: data.select(["name", "id", "amount", "at", "score", "region"])),
        r"it has the columns in the order \['name', 'id', 'amount', 'at', 'score'(, 'region')?\]\. Write",
    ),
    "narrow": (_cast("id", pa.int32()), "column id is INT32"),
    "unsigned": (_cast("id", pa.uint64()), "column id is INT64 Int"),
    "milliseconds": (_cast("at", pa.timestamp("ms", "UTC")), "column at is INT64 Timestamp"),
    "without zone": (_cast("at", pa.timestamp("us")), "column at is INT64 Timestamp"),
    "scale": (_cast("amount", pa.decimal128(12, 3)), "column amount is"),
    "int96": (_of(lambda data: data, use_deprecated_int96_timestamps=True), "column at is INT96"),
    "binary": (_cast("name", pa.binary()), "column name is BYTE_ARRAY"),
    "pipe": (_bytes(lambda raw: b""), "only 0 bytes"),
    "cut": (_bytes(lambda raw: raw[:-5]), "does not end as one"),
    "text": (_bytes(lambda raw: b"a,b\n1,2\n" * 9), "does not end as one"),
    "encrypted": (_bytes(lambda raw: raw[:-4] + b"PARE"), "encrypted footer. Write it without encryption"),
    "long footer": (
        _bytes(lambda raw: raw[:-8] + b"\xff\xff\xff\x7fPAR1"),
        "no more than the file has. Write fewer row groups",
    ),
    "garbled": (_bytes(_flipped), "footer of .* cannot be read"),
    "data cut out": (
        _bytes(lambda raw: raw[:4] + raw[-8 - int.from_bytes(raw[-8:-4], "little") :]),
        "outside of its data. Write it again",
    ),
    "climbing": (_changed(path="a/../region=EU/x.parquet"), "empty part, dots"),
    "another ending": (_changed(path="region=EU/bucket-0/data-0-x.orc"), "does not end with .parquet"),
}


@pytest.mark.parametrize("seed", range(4))
def test_a_spoiled_footer_is_refused_or_taken_and_ends_no_process(table: Place, seed: int) -> None:
    """The Parquet library alone ends the process for some of these footers."""
    dice = random.Random(seed)
    file = write(table, rows(), row_group_size=2)
    path = table.root / file.path
    whole = path.read_bytes()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    committer, found = Stream(table.lake).committer, set[str]()
    for _ in range(150):
        spoiled = bytearray(whole)
        for _ in range(dice.choice((1, 1, 1, 3, 8))):
            spoiled[dice.randrange(start, len(whole) - 8)] = dice.randrange(256)
        path.write_bytes(spoiled)
        try:
            committer.check([event(table, file)])
            found.add("taken")
        except BadFiles:
            found.add("refused")
    assert found == {"taken", "refused"}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused(table: Place, lie: str) -> None:
    make, text = LIES[lie]
    bad = event(table, make(table))
    _refused(table, bad, text)


CLAIMS: dict[str, tuple[Mapping[str, object], str]] = {
    "other format": ({"format": "hudi"}, "the event has the format hudi, but the table has"),
    "other version": ({"format_version": 7}, "metadata of the files has the `format_version` 7"),
    "other schema": ({"schema_id": 7}, "were written with schema 7, which the table lacks"),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_each_wrong_claim_of_an_event_has_a_sentence_of_its_own(table: Place, claim: str) -> None:
    changed, text = CLAIMS[claim]
    _refused(table, event(table, write(table, rows())).model_copy(update=changed), text)


def test_an_event_without_a_schema(table: Place) -> None:
    bare = event(table, write(table, rows())).model_copy(update={"schema_id": CURRENT_SCHEMA})
    if table.format == "delta":
        assert len(Stream(table.lake).committer.check([bare])) == 1
    else:
        _refused(table, bare, rf"the event lacks `schema_id`, which {table.format.capitalize()} needs")


def _refused(table: Place, bad: FilesWritten, text: str) -> None:
    stream = Stream(table.lake)
    with pytest.raises(BadFiles, match=text) as caught:
        stream.committer.check([bad])
    assert len(str(caught.value)) < 2_000
    assert isinstance(stream.ask(1), Absent)
    # The stream goes on: another event of the same committer is taken.
    good = event(table, write(table, rows()))
    assert len(stream.committer.check([good])) == 1


def test_a_rebuild_copies_files_without_metadata(table: Place, tmp_path: Path) -> None:
    other = place(table.format, tmp_path / "other")
    adopted = other.lake.maintenance().adopt(event(table, write(table, rows())))
    commit(other, adopted)
    assert other.read("true") == [1, 2, 3]
    assert other.root != table.root
