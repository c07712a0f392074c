"""Environments with a scheduler of others, in exactly the versions that the examples are tested with."""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.packaging.environments import UV, Environment, new_environment, run

FOLDER: Final = Path(__file__).parent
REQUIRED: Final = os.environ.get("SLUICEGATE_TEST_CONSUMERS") == "required"


def environment_of(name: str, folder: Path) -> Environment:
    """Make an environment of the packages in NAME.txt, which have hashes.

    Where they cannot be installed, the test is skipped, or fails if SLUICEGATE_TEST_CONSUMERS is `required`.
    """
    environment = new_environment(folder)
    try:
        run(
            *(UV, "pip", "install", "--python", environment.python),
            *("--require-hashes", "--no-build", "--requirement", FOLDER / f"{name}.txt"),
        )
    except AssertionError as error:
        if REQUIRED:
            raise
        pytest.skip(f"{name} cannot be installed here, so its example is NOT tested: {str(error)[-500:]}")
    return environment
