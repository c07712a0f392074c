"""Tables with keys as Paimon's own library in Java reads them, before and after its full compaction."""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from sluicegate.cli.local.jars import Java
from tests.contracts.lakes.harness import Stream
from tests.lakes.paimon import reading
from tests.lakes.paimon.java_judge import judged
from tests.lakes.paimon.keyed import SCHEMA, KeyedLake, Row
from tests.lakes.paimon.test_upkeep import java as java

WHOLE: Final = pa.int64()
Fold = Callable[[dict[Any, Any], Row], None]


def last(state: dict[Any, Any], row: Row) -> None:
    """Apply a row as the engine deduplicate does."""
    state.pop(row[0], None)
    if row[3] in ("+I", "+U"):
        state[row[0]] = row[1]


def update(state: dict[Any, Any], row: Row) -> None:
    """Apply a row as the engine partial-update does."""
    state[row[0]] = row[1] if row[1] is not None else state.get(row[0])


def filled(folder: Path, seed: int, options: Mapping[str, str], fold: Fold, kind: pa.DataType = WHOLE) -> Any:
    """Return a table with checkpoints that were written before their commits, and its rows by the model."""
    dice = random.Random(seed)
    lake = KeyedLake(folder, options, SCHEMA.set(0, pa.field("id", kind, nullable=False)))
    stream, rows, place = Stream(lake), list[Row](), 0
    is_ordered, has_deletions = "sequence.field" in options, fold is last
    for decision in range(1, 5):
        events = []
        for _ in range(2):
            place += 1
            own: list[Row] = []
            for _ in range(150):
                number, at = dice.randrange(60), len(rows) + len(own)
                dead = has_deletions and dice.random() < 0.3
                text = None if dice.random() < 0.3 else f"v{at}"
                order = dice.randrange(10**6) * 1000 + at
                key = f"k{number}" if kind == pa.string() else number
                own.append(
                    (key, text, order if is_ordered else at, "-D" if dead else dice.choice(["+I", "+U"]))
                )
            events.append(lake.upsert(own[:70], own[70:], place=place))
            rows += own
        stream.add(decision, *reversed(events))
    state: dict[Any, Any] = {}
    for row in sorted(rows, key=lambda row: row[2]):
        fold(state, row)
    return lake, state


NULLS: Final = (
    [(1, "a", 5), (2, "a", None), (3, "a", None), (4, "a", 5), (5, "a", 7), (6, "a", 7)],
    [(1, "b", None), (2, "b", 3), (3, "b", None), (4, "b", None, "-D"), (5, "b", 7), (6, "b", 7, "-D")],
)
"""Older and newer rows: a null is older than each value, and of two equal ones the later row wins."""
OF_NULLS: Final = {1: "a", 2: "b", 3: "b", 4: "a", 5: "b"}


def with_nulls(folder: Path, order: str) -> Any:
    """Return a table with nulls and equal values in `sequence.field`, within a file and in two."""
    lake = KeyedLake(folder, {"sequence.field": "at", "sequence.field.sort-order": order})
    stream, (older, newer) = Stream(lake), NULLS
    stream.add(1, lake.upsert(older, place=1))
    stream.add(2, lake.upsert(newer, place=2))
    moved = [(key + 10, *rest) for key, *rest in (*older, *newer)]
    stream.add(3, lake.upsert(moved, place=3))
    # Two tasks of one checkpoint, in one commit: the later part has the later rows.
    parts = [[(key + 20, *rest) for key, *rest in rows] for rows in NULLS]
    stream.add(4, *[lake.upsert(parts[at], place=4, part=(at, 2)) for at in (1, 0)])
    return lake, {key + more: value for more in (0, 10, 20) for key, value in OF_NULLS.items()}


def with_other_keys(folder: Path) -> Any:
    """Return a table whose key has its columns in another order, and whose rows move between partitions."""
    more = [pa.field("day", pa.string(), nullable=False), pa.field("part", pa.int32(), nullable=False)]
    columns = pa.schema([*SCHEMA, *more])
    lake = KeyedLake(folder, {"bucket": "5"}, columns, ("part", "day", "id"), ("day",))
    stream = Stream(lake)

    def rows(value: str, day: str, ids: range, kind: str = "+I") -> list[Row]:
        return [(key, value, 0, kind, day, key % 3) for key in ids]

    stream.add(1, lake.upsert(rows("a", "d1", range(60)), place=1))
    # The old row and the new one are in one batch, in two partitions.
    there, back = range(30), range(10)
    stream.add(2, lake.upsert(rows("a", "d1", there, "-U"), rows("b", "d2", there, "+U"), place=2))
    stream.add(3, lake.upsert(rows("b", "d2", back, "-U"), rows("c", "d1", back, "+U"), place=3))
    return lake, {key: "c" if key < 10 else "b" if key < 30 else "a" for key in range(60)}


@pytest.mark.slow
def test_java_reads_the_rows_of_the_model(java: tuple[Java, str], tmp_path: Path) -> None:
    made = [
        filled(tmp_path / "last", 1, {"bucket": "3"}, last),
        filled(tmp_path / "one", 2, {"bucket": "1"}, last, pa.string()),
        filled(tmp_path / "ordered", 3, {"sequence.field": "at"}, last),
        filled(tmp_path / "partial", 4, {"merge-engine": "partial-update"}, update),
        filled(tmp_path / "narrow", 5, {"bucket": "7"}, last, pa.int32()),
        with_nulls(tmp_path / "rising", "ascending"),
        with_nulls(tmp_path / "falling", "descending"),
        with_other_keys(tmp_path / "others"),
    ]
    (tmp_path / "spill").mkdir()
    found = judged(java, tmp_path / "spill", [lake.root for lake, _ in made])
    for number, (lake, state) in enumerate(made):
        assert lake.read().num_rows == len(state), "each key once"
        assert lake.state() == dict(sorted(state.items())), "after the compaction, by pypaimon"
        expected = {str(key): "null" if value is None else value for key, value in state.items()}
        assert found[number, "before"] == expected
        assert found[number, "after"] == expected
        head = lake.committer().inspect().head
        assert head is not None
        assert reading.snapshot(lake.root, head.id)["commitKind"] == "COMPACT"
