"""Programs that a machine may lack. A test without one is skipped, or fails where that is required."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Final

import pytest

REQUIRED: Final = os.environ.get("SLUICEGATE_TEST_TOOLS") == "required"


def of_this_environment(name: str) -> Path:
    """Return a program of the development group."""
    return Path(sysconfig.get_path("scripts")) / name


def of_the_system(name: str, package: str) -> str:
    """Return a program of the system. Without it, skip the test, or fail if SLUICEGATE_TEST_TOOLS is set."""
    found = shutil.which(name)
    if found is not None:
        return found
    reason = f"{name} is not installed here ({package}); the workflow `ci` requires it"
    if REQUIRED:
        pytest.fail(reason)
    pytest.skip(reason)


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program, and return its exit status and output."""
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
