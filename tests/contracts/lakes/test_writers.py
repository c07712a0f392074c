"""The writer half of every table format: what attempts leave behind."""

import pyarrow as pa
import pytest

from tests.contracts.lakes.harness import EvolvingLake


def rows(*ids: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64())})


def test_an_attempt_that_is_given_up_leaves_no_file(
    evolving: EvolvingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of the rows that are in files already."""
    monkeypatch.setattr("sluicegate.lakes.parquet.BUFFER_ROWS", 2)
    writer = evolving.adapter.open_writer(evolving.adapter.parse_table(evolving.location), None)
    for number in range(9):
        writer.write(rows(number))
    writer.abort()
    assert evolving.data_files() == 0


def test_a_described_attempt_keeps_its_files(evolving: EvolvingLake) -> None:
    writer = evolving.adapter.open_writer(evolving.adapter.parse_table(evolving.location), None)
    writer.write(rows(1))
    files = tuple(writer.finish())
    writer.abort()
    assert evolving.data_files() == len(files) == 1


def test_an_attempt_without_rows_has_no_files(evolving: EvolvingLake) -> None:
    writer = evolving.adapter.open_writer(evolving.adapter.parse_table(evolving.location), None)
    assert tuple(writer.finish()) == ()
    assert evolving.data_files() == 0
