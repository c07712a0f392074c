"""The fold in columns beside pypaimon's own, which works row by row and is the definition."""

import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.common.options import CoreOptions, Options
from pypaimon.read.reader.deduplicate_merge_function import DeduplicateMergeFunction
from pypaimon.read.reader.partial_update_merge_function import PartialUpdateMergeFunction
from pypaimon.write.writer.key_value_data_writer import KeyValueDataWriter

from sluicegate.lakes.paimon.upserts import KIND, NUMBER, last_rows, last_values, with_keys
from tests.contracts.lakes.harness import Stream
from tests.lakes.paimon.keyed import KeyedLake, Row

VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "whole": (pa.int32(), lambda dice: dice.randrange(-9, 9)),
    "text": (pa.string(), lambda dice: dice.choice(["", "a", "é中𝄞", "x" * 40])),
    "real": (pa.float64(), lambda dice: dice.choice([0.0, -0.0, 1.5, float("inf")])),
    "money": (pa.decimal128(12, 3), lambda dice: Decimal(dice.randrange(-999, 999)) / 1000),
    "day": (pa.date32(), lambda dice: date(1960, 1, 1) + timedelta(dice.randrange(30_000))),
    "time": (
        pa.timestamp("us"),
        lambda dice: datetime(1960, 1, 1) + timedelta(seconds=dice.randrange(10**9)),
    ),
    "flag": (pa.bool_(), lambda dice: dice.random() < 0.5),
    "raw": (pa.binary(), lambda dice: dice.randbytes(dice.randrange(4))),
    "many": (pa.list_(pa.int64()), lambda dice: [dice.randrange(5) for _ in range(dice.randrange(3))]),
}
KEYS: dict[str, tuple[pa.DataType, Any]] = {
    "k1": (pa.int64(), lambda dice: dice.randrange(6)),
    "k2": (pa.string(), lambda dice: dice.choice(["", "a", "b"])),
    "k3": (pa.timestamp("us"), lambda dice: datetime(2000, 1, 1 + dice.randrange(2))),
}


def library_writer(keys: list[str], values: int, *, engine: str, order: str | None) -> KeyValueDataWriter:
    """pypaimon's writer without a table."""
    writer = object.__new__(KeyValueDataWriter)
    writer.trimmed_primary_keys = keys
    writer.options = CoreOptions(Options({} if order is None else {"sequence.field": order}))
    whole = engine == "partial-update"
    writer._merge_function = (
        PartialUpdateMergeFunction(len(keys), values) if whole else DeduplicateMergeFunction()
    )
    return writer


def some_rows(dice: random.Random, keys: list[str], *, deletions: bool) -> pa.Table:
    number, nulls = dice.choice([0, 1, 2, 3, 50, 400]), dice.choice([0.0, 0.3, 0.95])
    values = dice.sample(sorted(VALUES), dice.randrange(1, 5))
    columns = {
        NUMBER: pa.array(range(100, 100 + number), pa.int64()),
        KIND: pa.array(
            [dice.randrange(4) if deletions else dice.choice([0, 2]) for _ in range(number)], pa.int8()
        ),
    }
    for name in keys:
        kind, make = KEYS[name]
        columns[name] = pa.array([make(dice) for _ in range(number)], kind)
    for name in values:
        kind, make = VALUES[name]
        found = [None if dice.random() < nulls else make(dice) for _ in range(number)]
        columns[name] = pa.array(found, kind)
    whole = pa.table(columns)
    batches = [with_keys(each, keys) for each in whole.to_batches(max_chunksize=dice.choice([7, 1000]))]
    schema = with_keys(pa.RecordBatch.from_pylist([], whole.schema), keys).schema
    return pa.Table.from_batches(batches, schema)


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update"])
@pytest.mark.parametrize("seed", range(60))
def test_both_folds_are_equal(engine: str, seed: int) -> None:
    dice = random.Random(seed)
    keys = dice.sample(sorted(KEYS), dice.randrange(1, 4))
    rows = some_rows(dice, keys, deletions=engine == "deduplicate")
    numbers = [name for name in ("whole", "time", "text", "real") if name in rows.column_names]
    order = dice.choice([None, *numbers])
    writer = library_writer(keys, rows.num_columns - len(keys) - 2, engine=engine, order=order)
    ordered = writer._sort_by_primary_key(rows)
    expected = writer._merge_pending_by_pk(ordered)
    found = (last_rows if engine == "deduplicate" else last_values)(ordered, len(keys))
    assert found.schema == expected.schema
    # The library leaves a single row as it is, also its kind.
    assert found.to_pylist() == expected.to_pylist()
    assert repr(found.to_pylist()) == repr(expected.to_pylist())  # tells the two zeros apart


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_table_has_the_rows_of_a_model(tmp_path: Path, seed: int, is_ordered: bool) -> None:
    """Checkpoints of several tasks, which are written long before they are committed."""
    dice = random.Random(seed)
    options = {"bucket": str(dice.choice([1, 3])), "target-file-size": "16kb"}
    if is_ordered:
        options["sequence.field"] = "at"
    lake, model = KeyedLake(tmp_path, options), dict[int, tuple[int, str | None]]()
    stream, clock, place = Stream(lake), 0, 0
    for decision in range(1, 6):
        events = []
        for _ in range(dice.randrange(1, 4)):
            place, rows = place + 1, list[Row]()
            for _ in range(dice.choice([1, 30, 900])):
                key, clock = dice.randrange(200), clock + 1
                at = dice.randrange(10**6) * 10**4 + clock if is_ordered else clock
                dead = dice.random() < 0.3
                rows.append((key, f"v{clock}", at, "-D" if dead else dice.choice(["+I", "+U"])))
                if key not in model or model[key][0] < at:
                    model[key] = (at, None if dead else f"v{clock}")
            tasks = dice.choice([1, 3])
            for task in range(tasks):
                own = [row for row in rows if row[0] % tasks == task]
                cut = dice.randrange(len(own) + 1)
                if own:
                    events.append(lake.upsert(own[:cut], own[cut:], place=place, part=(task, tasks)))
        dice.shuffle(events)
        stream.add(decision, *events)
        assert lake.state() == {key: value for key, (_, value) in sorted(model.items()) if value is not None}
