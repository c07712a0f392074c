"""Tables with thousands of columns: no step may take time that grows with the square of their number."""

import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from sluicegate.lakes.port import SchemaMismatch
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.paimon_lake import PaimonLake

Lake = IcebergLake | DeltaLake | PaimonLake


def made(kind: str, folder: Path, columns: int, properties: dict[str, str] | None = None) -> Lake:
    if kind == "iceberg":
        kinds = (LongType(), StringType())
        fields = [NestedField(at + 1, f"c{at}", kinds[at % 2], required=False) for at in range(columns)]
        return IcebergLake(folder, schema=Schema(*fields), properties=properties)
    schema = pa.schema([(f"c{at}", (pa.int64(), pa.string())[at % 2]) for at in range(columns)])
    if kind == "delta":
        return DeltaLake(folder, schema, properties=properties)
    return PaimonLake(folder, schema, options=properties)


def rows(columns: int, text: str = "a") -> pa.RecordBatch:
    arrays = (pa.array([1, 2]), pa.array([text, text]))
    return pa.record_batch({f"c{at}": arrays[at % 2] for at in range(columns)})


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["paimon", *(pytest.param(each, marks=pytest.mark.matrix) for each in ("delta", "iceberg"))]
)
def test_ten_thousand_columns_take_a_moment(tmp_path: Path, kind: str) -> None:
    """It took 32 seconds of the processor in Iceberg. A time of the processor does not depend on its load."""
    lake, batch = made(kind, tmp_path, 10_000), rows(10_000)
    started = time.process_time()
    event = lake.write(batch)
    Stream(lake).add(1, event)
    assert time.process_time() - started < 16


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "properties", "way"),
    [
        ("iceberg", {"write.metadata.metrics.default": "full"}, "write.metadata.metrics.default"),
        ("delta", {"delta.dataSkippingNumIndexedCols": "-1"}, "delta.dataSkippingNumIndexedCols"),
        ("paimon", {}, "stats-mode = none"),
    ],
)
def test_statistics_that_no_event_can_carry_are_refused_by_name(
    tmp_path: Path, kind: str, properties: dict[str, str], way: str
) -> None:
    columns = 9_000 if kind == "delta" else 3_000
    lake = made(kind, tmp_path, columns, properties)
    with pytest.raises(SchemaMismatch) as raised:
        lake.write(rows(columns, "x" * 200))
    assert "the option file.statistics" in str(raised.value)
    assert way in str(raised.value)
