"""An independent reader of Paimon append tables: it reads the files and shares no code with any writer.

It compares all redundant facts of snapshots, manifest lists, manifests and data files. The first
contradiction is an error.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Record = dict[str, Any]

_SNAPSHOT: Final = re.compile(r"snapshot-(\d+)")
_ADD: Final = 0


class TableDamaged(Exception):
    """The table cannot be read as its own metadata describe it."""


class Commit(NamedTuple):
    """Changes of one snapshot."""

    snapshot: int
    user: str
    identifier: int
    files: int
    rows: int


class Contents(NamedTuple):
    """A table as of its newest snapshot."""

    rows: pa.Table
    files: int
    commits: tuple[Commit, ...]


def read_table(root: Path, *, compacted: bool = False) -> Contents:
    """Read a table that is partitioned by one string column, and to which all commits have only appended.

    `compacted` allows compactions: only they may remove files, and they must keep the number of rows.

    Raises:
        TableDamaged: it cannot be read, or its metadata contradict each other.
    """
    try:
        return _read(root, compacted=compacted)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise TableDamaged(f"the table at {root} cannot be read ({type(error).__name__}: {error})") from error


def _read(root: Path, *, compacted: bool) -> Contents:
    key = _partition_key(root)
    commits: list[Commit] = []
    # The snapshot that added each data file, and the files that are still in the table.
    added: dict[str, int] = {}
    live: set[str] = set()
    total = 0
    newest: Record = {}
    for number, newest in _snapshots(root):
        entries = _checked_entries(root, newest["deltaManifestList"], newest["deltaManifestListSize"])
        compaction = compacted and newest["commitKind"] == "COMPACT"
        rows = _take_over(entries, number, added, live, removing=compaction)
        if compaction and rows:
            raise TableDamaged(f"snapshot {number} is a compaction that changes the rows by {rows}")
        total += rows
        if (newest["deltaRecordCount"], newest["totalRecordCount"]) != (rows, total):
            raise TableDamaged(f"snapshot {number} counts other rows than its files have")
        commits.append(Commit(number, newest["commitUser"], newest["commitIdentifier"], len(entries), rows))
    current = _current_entries(root, newest) if newest else []
    names = [entry["_FILE"]["_FILE_NAME"] for entry in current]
    if len(set(names)) != len(names) or set(names) != live:
        raise TableDamaged("the newest snapshot lists other files than all snapshots have added")
    tables = [_read_file(root, key, entry) for entry in current]
    rows_read = pa.concat_tables(tables) if tables else pa.table({})
    return Contents(rows_read, len(names), tuple(commits))


def _take_over(
    entries: list[Record], number: int, added: dict[str, int], live: set[str], *, removing: bool
) -> int:
    """Apply one snapshot's own entries; return the change of the number of rows. Raises TableDamaged."""
    rows = 0
    for entry in entries:
        name = entry["_FILE"]["_FILE_NAME"]
        if entry["_KIND"] == _ADD:
            if name in added:
                raise TableDamaged(f"{name} is in snapshot {added[name]} and again in snapshot {number}")
            added[name] = number
            live.add(name)
            rows += entry["_FILE"]["_ROW_COUNT"]
        elif not removing:
            raise TableDamaged(f"snapshot {number} removes files, which nobody should have done")
        elif name not in live:
            raise TableDamaged(f"snapshot {number} removes {name}, which was not there")
        else:
            live.remove(name)
            rows -= entry["_FILE"]["_ROW_COUNT"]
    return rows


def _partition_key(root: Path) -> str:
    schema = json.loads((root / "schema" / "schema-0").read_bytes())
    keys: list[str] = schema["partitionKeys"]
    types = {field["name"]: field["type"] for field in schema["fields"]}
    if len(keys) != 1 or not types[keys[0]].startswith("STRING"):
        raise TableDamaged(f"the table is partitioned by {keys}, not by one column of type STRING")
    return keys[0]


def _snapshots(root: Path) -> Iterator[tuple[int, Record]]:
    """Yield all snapshots from the first one, without a gap. Raises TableDamaged."""
    matches = (_SNAPSHOT.fullmatch(path.name) for path in root.glob("snapshot/*"))
    numbers = sorted(int(match[1]) for match in matches if match)
    if numbers != list(range(1, len(numbers) + 1)):
        raise TableDamaged(f"snapshots are missing: there are only {numbers}")
    for number in numbers:
        yield number, json.loads((root / "snapshot" / f"snapshot-{number}").read_bytes())


def _current_entries(root: Path, snapshot: Mapping[str, Any]) -> list[Record]:
    entries = [
        entry
        for which in ("base", "delta")
        for entry in _checked_entries(
            root, snapshot[f"{which}ManifestList"], snapshot[f"{which}ManifestListSize"]
        )
    ]
    removed = {entry["_FILE"]["_FILE_NAME"] for entry in entries if entry["_KIND"] != _ADD}
    kept = [entry for entry in entries if entry["_KIND"] == _ADD]
    return [entry for entry in kept if entry["_FILE"]["_FILE_NAME"] not in removed]


def _checked_entries(root: Path, manifest_list: str, size: int) -> list[Record]:
    """Return all entries of a manifest list.

    Raises TableDamaged if a manifest differs from its description.
    """
    entries: list[Record] = []
    for line in _records(root, manifest_list, size):
        inside = _records(root, line["_FILE_NAME"], line["_FILE_SIZE"])
        adding = sum(entry["_KIND"] == _ADD for entry in inside)
        if (adding, len(inside) - adding) != (line["_NUM_ADDED_FILES"], line["_NUM_DELETED_FILES"]):
            raise TableDamaged(f"{line['_FILE_NAME']} has {len(inside)} entries, other than described")
        entries += inside
    return entries


def _records(root: Path, name: str, size: int) -> list[Record]:
    path = root / "manifest" / name
    if path.stat().st_size != size:
        raise TableDamaged(f"{path} has {path.stat().st_size} bytes instead of {size}")
    with path.open("rb") as file:
        return [dict(record) for record in fastavro.reader(file) if isinstance(record, dict)]


def _read_file(root: Path, key: str, entry: Record) -> pa.Table:
    partition = decode_string_row(entry["_PARTITION"])
    described = entry["_FILE"]
    path = root / f"{key}={partition}" / f"bucket-{entry['_BUCKET']}" / described["_FILE_NAME"]
    rows = pq.read_table(path, partitioning=None)
    if (path.stat().st_size, rows.num_rows) != (described["_FILE_SIZE"], described["_ROW_COUNT"]):
        raise TableDamaged(f"{path} has another size or number of rows than its entry says")
    if not pc.all(pc.equal(rows.column(key), partition)).as_py():
        raise TableDamaged(f"{path} has rows of another {key} than its folder says")
    return rows


def decode_string_row(raw: bytes) -> str:
    """Decode Paimon's binary row of exactly one string that is not null. Raises TableDamaged.

    The row has four bytes of arity (big-endian), eight bytes of row kind and null bits, and eight bytes for
    the field. The field has up to seven bytes of text with the length in the last byte. For a longer text it
    has its length and offset.
    """
    if len(raw) < 20 or int.from_bytes(raw[:4], "big") != 1 or any(raw[4:12]):
        raise TableDamaged(f"the partition {raw.hex()} is not one string")
    field = raw[12:20]
    if field[7] & 0x80:
        text = field[: field[7] & 0x7F]
    else:
        size, offset = int.from_bytes(field[:4], "little"), int.from_bytes(field[4:], "little")
        text = raw[4 + offset : 4 + offset + size]
    return text.decode()
