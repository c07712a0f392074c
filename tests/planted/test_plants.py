"""Each planted defect is seen by a fast test of its area."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted.planting import VARIABLE, wrong_code
from tests.planted.plants import PLANTS, Plant

ROOT = Path(__file__).parents[2]
HANG = 120
"""Seconds: some defects make a test wait for ever, which is seen, too."""


def run(plant: Plant) -> subprocess.CompletedProcess[str]:
    """Run the tests that should see the defect, in a process that has it."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n0",
        "-p",
        "tests.planted.planting",
        "-m",
        plant.marks,
    ]
    return subprocess.run(
        [*command, f"--timeout={HANG}", "--no-header", "--tb=no", *plant.seen_by.split()],
        cwd=ROOT,
        env={**os.environ, VARIABLE: plant.name},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_planted_defect_is_seen(plant: Plant) -> None:
    done = run(plant)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-2_000:] + done.stderr[-2_000:]


@pytest.mark.slow
@pytest.mark.seam
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_defect_fits_its_function(plant: Plant) -> None:
    assert wrong_code(plant) is not None


def test_names_are_distinct() -> None:
    assert len({plant.name for plant in PLANTS}) == len(PLANTS) >= 40
