"""The demo with marks, on real servers: twelve months, each marked in time through kills, in each format."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.cli.local.demo import _OF_FORMAT
from sluicegate.cli.local.watch import MONTHS

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
COMMAND = (sys.executable, "-c", "from sluicegate.cli.main import main; main()", "demo")


@pytest.mark.parametrize("table_format", sorted(_OF_FORMAT))
def test_each_month_is_marked_when_all_airports_have_passed_it(table_format: str, tmp_path: Path) -> None:
    options = ["--rows", "400", "--mark-done", "--kill-coordinator", "--kills", "2", "--seed", "7", "--json"]
    work = tmp_path / "work"
    done = subprocess.run(
        [*COMMAND, *options, "--format", table_format, "--work-dir", str(work)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found["months_marked"]) == list(MONTHS)
    assert found["marks_wrong"] == []
    assert (found["rows"], found["missing"], found["duplicated"], found["kills"]) == (400, 0, 0, 2)
    assert found["months_marked"]["2013-01"] < found["months_marked"]["2013-12"]
    for month in MONTHS:
        assert f"{month} is done with commit {found['months_marked'][month]}: EWR at " in done.stderr
    folders = [each.parent.name for each in (work / "warehouse").rglob("_SUCCESS")]
    assert sorted(folders) == [f"month={month}" for month in MONTHS]
