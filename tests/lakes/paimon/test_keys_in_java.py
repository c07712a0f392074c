"""Tables with keys as Paimon's own library in Java reads them, before and after its full compaction."""

import random
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
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


NULLS: Final[tuple[list[Row], list[Row]]] = (
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


EPOCH: Final = datetime(1970, 1, 1)
DICE: Final = random.Random(1)
KEYS: Final[dict[str, tuple[pa.DataType, list[Any]]]] = {
    "long texts": (pa.string(), [f"{'p' * 300}{at:03}{'q' * DICE.randrange(200)}" for at in range(40)]),
    "odd texts": (pa.string(), [DICE.choice("\uffff\U0001f600é~日") + str(at) for at in range(40)]),
    "wide": (
        pa.decimal128(30, 5),
        [Decimal(DICE.randrange(-(10**24), 10**24)).scaleb(-5) for _ in range(40)],
    ),
    "narrow": (
        pa.decimal128(10, 2),
        [Decimal(DICE.randrange(-(10**9), 10**9)).scaleb(-2) for _ in range(40)],
    ),
    "micros": (pa.timestamp("us"), [EPOCH + timedelta(hours=at, microseconds=7) for at in range(-20, 20)]),
    "millis": (pa.timestamp("ms"), [EPOCH + timedelta(hours=at, milliseconds=7) for at in range(-20, 20)]),
    "seconds": (pa.timestamp("s"), [EPOCH + timedelta(hours=at) for at in range(-20, 20)]),
    "days": (pa.date32(), [EPOCH.date() + timedelta(days=at) for at in range(-20, 20)]),
    "bytes": (pa.int8(), [*range(-20, 20)]),
    "shorts": (pa.int16(), [*range(-20_000, 20_000, 1000)]),
    "longs": (pa.int64(), [DICE.randrange(-(2**63), 2**63) for _ in range(40)]),
    "flags": (pa.bool_(), [False, True]),
}
"""Keys of each type, also below zero, before 1970, and longer than a bound."""


def with_keys(folder: Path, kind: pa.DataType, keys: list[Any]) -> tuple[KeyedLake, list[str]]:
    """Return a table whose files share some of their keys, and the values that it must have."""
    dice = random.Random(2)
    lake = KeyedLake(folder, {"bucket": "2"}, SCHEMA.set(0, pa.field("id", kind, nullable=False)))
    stream, values = Stream(lake), dict[int, str]()
    for place in range(1, 5):
        chosen = dice.sample(range(len(keys)), max(1, len(keys) // 2))
        rows = [(keys[at], f"{at}-{place}", 0, dice.choice(["+I", "+U", "-D"])) for at in chosen]
        stream.add(place, lake.upsert(rows, place=place))
        for at, (_, value, _, dead) in zip(chosen, rows, strict=True):
            values.pop(at, None)
            if dead != "-D":
                values[at] = value
    return lake, sorted(values.values())


@pytest.mark.slow
@pytest.mark.matrix
def test_java_reads_keys_of_each_type(java: tuple[Java, str], tmp_path: Path) -> None:
    made = {name: with_keys(tmp_path / name, *each) for name, each in KEYS.items()}
    (tmp_path / "spill").mkdir()
    found = judged(java, tmp_path / "spill", [lake.root for lake, _ in made.values()])
    for number, (name, (lake, values)) in enumerate(made.items()):
        assert sorted(lake.read()["value"].to_pylist()) == values, name
        assert sorted(found[number, "before"].values()) == values, name
        assert sorted(found[number, "after"].values()) == values, name
