"""The consistency contract names scenarios that there are, and its diagrams are those of the code."""

import re
from pathlib import Path

import pytest

from sluicegate.coordinator.core.transitions import TABLES
from sluicegate.coordinator.diagrams import diagram, main, render
from tests.golden.test_cases import FILES, NEEDED

CONTRACT = Path(__file__).parents[2] / "docs" / "consistency.md"
SCENARIO = re.compile(r"`((?:[a-d]\d|" + "|".join(NEEDED) + r")_\w+)`")


def test_the_diagrams_are_current() -> None:
    assert main(["--check", str(CONTRACT)]) == 0, "run python -m sluicegate.coordinator.diagrams"
    for kind in TABLES:
        assert diagram(kind) in CONTRACT.read_text(encoding="utf-8")


def test_every_row_of_the_contract_has_a_scenario_that_there_is() -> None:
    text = CONTRACT.read_text(encoding="utf-8")
    transitions = text.partition("## What happens")[2].partition("## States")[0]
    rows = [line for line in transitions.splitlines() if line.startswith("| ") and "scenario |" not in line]
    assert len(rows) > 40
    assert [row for row in rows if not SCENARIO.search(row)] == []
    assert set(SCENARIO.findall(text)) - {path.stem for path in FILES} == set()


def test_a_stale_diagram_is_named_and_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "contract.md"
    copy.write_text("before\n<!-- states: region -->\nold\n<!-- end -->\nafter\n")
    assert main(["--check", str(copy)]) == 1
    assert "is stale; run" in capsys.readouterr().out
    assert main([str(copy)]) == 0
    assert main(["--check", str(copy)]) == 0
    text = copy.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert render(text) == text
