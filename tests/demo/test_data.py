"""The data set: every flight once, in the month that UTC says, in files in the order of time."""

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sluicegate.cli.local import flights as data


@pytest.mark.slow
def test_every_flight_of_each_airport_is_there(flights: pa.Table) -> None:
    counts = {each["values"]: each["counts"] for each in flights["origin"].value_counts().to_pylist()}
    assert counts == {"EWR": 120_835, "JFK": 111_279, "LGA": 104_662}
    assert flights.column("flight_id").to_pylist() == list(range(data.TOTAL_ROWS))
    assert flights.schema == data.SCHEMA


def test_month_is_that_of_utc(flights: pa.Table) -> None:
    assert len(flights.column("month").unique()) == 13, "the year's last evening is in January 2014"
    local = pc.utf8_slice_codeunits(flights.column("local_date").cast(pa.string()), 0, 7)
    elsewhere = flights.filter(pc.not_equal(local, flights.column("month")))
    assert elsewhere.num_rows == 1_218
    last = flights.slice(flights.num_rows - 1).to_pylist()[0]
    assert last["time_hour"] == datetime(2014, 1, 1, 4, tzinfo=UTC)
    assert (last["month"], last["local_date"]) == ("2014-01", date(2013, 12, 31))


@pytest.mark.slow
def test_files_hold_every_row_once_in_the_order_of_time(flights: pa.Table, tmp_path: Path) -> None:
    some = flights.slice(0, 5_000)
    files = data.write_batches(some, tmp_path, 7)
    assert {region: len(of) for region, of in files.items()} == dict.fromkeys(data.REGIONS, 7)
    for region, of in files.items():
        stamps = [file.stat().st_mtime for file in of]
        assert stamps == sorted(set(stamps)), "Spark reads files in the order of their times"
        parts = [pq.read_table(file) for file in of]
        own = some.filter(pc.equal(some.column("origin"), region))
        assert pa.concat_tables(parts).combine_chunks() == own.combine_chunks()
