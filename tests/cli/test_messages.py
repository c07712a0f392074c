"""Every command in the sentence of a problem exists, with these options."""

import re
import shlex
from typing import Final

import click
import pytest
from click.testing import CliRunner

from sluicegate.cli.main import main
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.events.problems import Code, Problem

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


def test_an_unknown_option_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in _SETTINGS.items():
        monkeypatch.setenv(name, value)
    command, arguments = command_of(["stream", "resume", "--stream", "flights", "--nothing"])
    with pytest.raises(click.UsageError, match="nothing"):
        command.make_context(command.name, arguments)
