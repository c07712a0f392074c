"""What the commands import: the service starts sooner the less that is."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from sluicegate.cli import main

COMMANDS: Final = Path(__file__).parents[2] / "cli"
PROGRAM: Final = """\
import json, sys
import sluicegate.cli.run, sluicegate.coordinator.runtime.service
print(json.dumps(sorted(sys.modules)))
"""


def test_every_command_is_in_the_list() -> None:
    context = click.Context(main)
    found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    assert all(command is not None and command.name == name for name, command in found.items())
    declared = sum(path.read_text().count("\n@click.command(") for path in COMMANDS.glob("*.py"))
    groups = sum(path.read_text().count("\n@click.group(") for path in COMMANDS.glob("*.py"))
    # One of the groups is the root.
    assert len(found) == declared + groups - 1


def test_there_is_no_command_of_another_name() -> None:
    assert main.get_command(click.Context(main), "dead_letters") is None


def test_the_service_imports_nothing_that_other_commands_need(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    heavy = {"redis", "pypaimon", "pyarrow", "pyspark", "sluicegate.simulator", "sluicegate.demo"}
    assert heavy.isdisjoint(json.loads(done.stdout))
