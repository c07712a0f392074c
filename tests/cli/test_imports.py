"""What the commands import: they and the service start sooner the less that is."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

PROGRAM: Final = """\
import json, sys
for each in sys.argv[1:]:
    __import__(f"sluicegate.{each}")
print(json.dumps(sorted(sys.modules)))
"""
HEAVY: Final = {"redis", "pypaimon", "pyarrow", "pyspark", "sluicegate.cli.local"}


def imported(folder: Path, *modules: str) -> set[str]:
    """Return what a process has imported after these modules."""
    command = [sys.executable, "-c", PROGRAM, *modules]
    return set(
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stdout)
    )


@pytest.mark.slow
def test_the_service_imports_nothing_that_other_commands_need(tmp_path: Path) -> None:
    assert HEAVY.isdisjoint(imported(tmp_path, "cli.run", "coordinator.service.service"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "modules",
    [("status",), ("history",), ("orders", "stream"), ("region",), ("commit",)],
)
def test_a_command_imports_nothing_that_the_service_alone_needs(
    tmp_path: Path, modules: tuple[str, ...]
) -> None:
    """The HTTP server and the log take a third of the processor time of a short command."""
    heavy = HEAVY | {"aiohttp", "structlog", "prometheus_client", "sluicegate.coordinator.service.service"}
    assert heavy.isdisjoint(imported(tmp_path, *(f"cli.{each}" for each in modules)))
