"""`sluicegate simulate` says how far it is."""

import re
from importlib import import_module

import pytest
from click.testing import CliRunner

from sluicegate.cli.main import main


@pytest.mark.slow
def test_signs_of_life_go_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    # The package's name for it may be the command that it holds.
    module = import_module("sluicegate.cli.simulate")
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    result = CliRunner().invoke(main, ["simulate", "--seeds", "3", "--seed", "1", "--steps", "20"])
    said = re.findall(
        r"^(\d) of 3 schedules, 0 violations so far, about .+ to go$", result.stderr, re.MULTILINE
    )
    assert said == ["1", "2"]
    assert "so far" not in result.stdout
