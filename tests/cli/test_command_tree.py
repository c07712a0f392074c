"""Commands by noun, those that sentences name, values that a shell completes, and what is imported."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner

from sluicegate.cli.main import main
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.events.problems import Code, Problem


def tree(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Give the commands of a group, imported, by name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield name, command


def test_every_command_has_its_own_name_and_a_whole_sentence_in_the_list() -> None:
    for name, command in tree(main):
        members = [(name, command), *(tree(command) if isinstance(command, click.Group) else ())]
        for named, each in members:
            assert each.name == named
            assert each.short_help
            assert "..." not in each.short_help


def test_a_misspelt_command_names_the_nearest_one() -> None:
    result = CliRunner().invoke(main, ["strem", "pause"])
    assert (result.exit_code, "stream" in result.stderr) == (2, True), result.output
    result = CliRunner().invoke(main, ["stream", "puase"])
    assert (result.exit_code, "pause" in result.stderr) == (2, True), result.output


_COMMAND: Final = re.compile(r"`(sluicegate [^`]+)`")
_VALUES: Final = {"SNAPSHOT:IDENTITY": "57:abc", "LOCATION": "/checkpoints/ewr", "REGION": "EWR"}
"""Values in place of the names that a user has to replace."""

_SETTINGS: Final = {
    "SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS": "broker:9092",
    "SLUICEGATE_STREAMS__FLIGHTS__TABLE": "/tables/flights",
}


def commands(code: Code) -> list[list[str]]:
    """Return the commands in the sentence of a code, as arguments."""
    problem = Problem(
        code=code, region="EWR", incarnation="i1", checkpoint=7, other=5, number=4, names=("n1", "n2")
    )
    found = _COMMAND.findall(format_problem(problem, "flights"))
    return [[_VALUES.get(word, word) for word in shlex.split(each)[1:]] for each in found]


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command of arguments, and its own arguments."""
    command, rest = click.Command("sluicegate"), words
    current: click.Command = main
    while isinstance(current, click.Group):
        name, found, rest = current.resolve_command(click.Context(current), rest)
        assert name is not None
        assert found is not None
        current = command = found
    return command, rest


def test_the_commands_of_each_sentence_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in _SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLUICEGATE_CONFIG", raising=False)
    for words in (words for code in Code for words in commands(code)):
        command, arguments = command_of(words)
        if "--help" in arguments:
            assert CliRunner().invoke(main, words).exit_code == 0
            continue
        # It fails for an option or a value that the command does not have, and for one that it needs.
        command.make_context(command.name, list(arguments))


def test_commands_are_found_in_sentences() -> None:
    of = ["--stream", "flights"]
    assert commands(Code.PAUSED) == [["stream", "resume", *of], ["audit", *of]]
    assert commands(Code.BASE_DIFFERS)[-1][:4] == ["region", "reset", "--stream", "flights"]


IMPORTING: Final = """\
import json, sys
for each in sys.argv[1:]:
    __import__(f"sluicegate.{each}")
print(json.dumps(sorted(sys.modules)))
"""

HEAVY: Final = {"redis", "pypaimon", "pyarrow", "pyspark", "sluicegate.cli.local"}


def imported(folder: Path, *modules: str) -> set[str]:
    """Return what a process has imported after these modules."""
    command = [sys.executable, "-c", IMPORTING, *modules]
    return set(
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stdout)
    )


@pytest.mark.slow
def test_the_service_imports_nothing_that_other_commands_need(tmp_path: Path) -> None:
    assert HEAVY.isdisjoint(imported(tmp_path, "cli.run", "coordinator.service.service"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "modules", [("status",), ("history",), ("orders", "stream"), ("region",), ("commit",)]
)
def test_a_command_imports_nothing_that_the_service_alone_needs(
    tmp_path: Path, modules: tuple[str, ...]
) -> None:
    """The HTTP server and the log take a third of the processor time of a short command."""
    heavy = HEAVY | {"aiohttp", "structlog", "prometheus_client", "sluicegate.coordinator.service.service"}
    assert heavy.isdisjoint(imported(tmp_path, *(f"cli.{each}" for each in modules)))
