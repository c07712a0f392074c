"""The example programs for Ray and Dask. They run where these packages are installed."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.test_python_driver import rows
from tests.integration.test_python_examples import EXAMPLES

pytestmark = pytest.mark.kafka

FILES = 4


@pytest.mark.parametrize(("script", "package"), [("ray_datasink", "ray"), ("dask_backfill", "distributed")])
async def test_a_dataset_is_one_commit_and_counts_once(
    place: Place, tmp_path: Path, script: str, package: str
) -> None:
    pytest.importorskip(package)
    source = tmp_path / "source"
    source.mkdir()
    for number in range(FILES):
        pq.write_table(rows(2 * number, 2 * number + 1), source / f"{number}.parquet")
    command = [sys.executable, str(EXAMPLES / f"{script}.py"), place.bootstrap, place.table, "first"]
    command += [str(source), "--regions", "jobs", "--topic-prefix", place.prefix]
    async with running(place.settings("orders")):
        for printed in (f"first: {2 * FILES} rows", "first is committed already"):
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
            assert done.stdout.strip().endswith(printed), done.stderr
    assert read_ids(place.table) == list(range(2 * FILES))
