"""The example of the README: rows of a file in a new table, with each format that it can make."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests.integration.conftest import Place
from tests.integration.coordinator import running, settings_for

pytestmark = pytest.mark.kafka

EXAMPLES: Final = Path(__file__).parents[2] / "examples"


async def ran(example: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example."""
    command = [sys.executable, str(EXAMPLES / example), *arguments]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)


async def printed(example: str, *arguments: str) -> list[str]:
    """Run an example; return the lines of its output."""
    done = await ran(example, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("lake", ["paimon", "delta", "iceberg"])
async def test_rows_that_were_added_to_a_file_are_committed_once(
    lake: str, place: Place, tmp_path: Path
) -> None:
    table, file = tmp_path / "lake" / "default.db" / "orders", tmp_path / "orders.csv"
    text = (EXAMPLES / "orders.csv").read_text(encoding="utf-8")
    file.write_text(text)
    more = [str(table), "--format", lake, "--topic-prefix", place.prefix]
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    options, catalog = ({"uri": uri}, [uri]) if lake == "iceberg" else ({}, [])
    more += [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    streams = {"orders": {"table": str(table), "format": lake, "options": options}}
    async with running(settings_for(place.bootstrap, place.prefix, streams), ready=False):
        run = [place.bootstrap, "orders", str(file), *more]
        assert await printed("own_table.py", *run) == ["3 new rows are committed"]
        assert await printed("own_table.py", *run) == ["all 3 rows are committed already"]
        file.write_text(f"{text}4,screws,500,0.05\n")
        # The same rows as Parquet: the offset is a number of rows of the source.
        parquet = file.with_suffix(".parquet")
        pq.write_table(pyarrow.csv.read_csv(file), parquet)
        run = [place.bootstrap, "orders", str(parquet), *more]
        assert await printed("own_table.py", *run) == ["1 new rows are committed"]
    shown = await printed("read_rows.py", str(table), *catalog)
    assert sorted(shown[:-1]) == [
        "1  bolts  200  0.12",
        "2  nuts  350  0.07",
        "3  washers  80  0.03",
        "4  screws  500  0.05",
    ]
    assert shown[-1] == "4 rows"
