"""Tables with keys as Paimon's own library in Java reads them, before and after its full compaction."""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from sluicegate.cli.local.jars import Java
from tests.contracts.lakes.harness import Stream
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


@pytest.mark.slow
def test_java_reads_the_rows_of_the_model(java: tuple[Java, str], tmp_path: Path) -> None:
    made = [
        filled(tmp_path / "last", 1, {"bucket": "3"}, last),
        filled(tmp_path / "one", 2, {"bucket": "1"}, last, pa.string()),
        filled(tmp_path / "ordered", 3, {"sequence.field": "at"}, last),
        filled(tmp_path / "partial", 4, {"merge-engine": "partial-update"}, update),
        filled(tmp_path / "narrow", 5, {"bucket": "7"}, last, pa.int32()),
    ]
    (tmp_path / "spill").mkdir()
    found = judged(java, tmp_path / "spill", [lake.root for lake, _ in made])
    for number, (lake, state) in enumerate(made):
        assert lake.state() == dict(sorted(state.items())), "after the compaction, by pypaimon"
        expected = {str(key): "null" if value is None else value for key, value in state.items()}
        assert found[number, "before"] == expected
        assert found[number, "after"] == expected
        head = lake.committer().inspect().head
        assert head is not None
        assert head.id == 5, "the compaction is one more snapshot"
