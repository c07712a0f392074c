"""Commands by noun: each is listed."""

from collections.abc import Iterator

import click
from click.testing import CliRunner

from sluicegate.cli.main import main

NOUNS = {
    "assignment": ["close", "withdraw"],
    "commit": ["revert"],
    "dead-letters": ["drop", "list", "retry", "show"],
    "orphans": ["delete", "list"],
    "region": ["remove", "reset"],
    "replay": ["rebuild", "repair", "verify"],
    "stream": ["adopt", "cancel", "drain", "forget", "pause", "recover", "resume", "savepoint", "skip"],
    "topics": ["create"],
    "uploads": ["discard", "drain", "list"],
}
SINGLE = [
    "audit",
    "check",
    "completion",
    "conformance",
    "demo",
    "history",
    "init",
    "run",
    "servers",
    "status",
    "up",
    "wait",
]


def tree(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Give the commands of a group, imported, by name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield name, command


def test_every_command_is_in_the_list() -> None:
    found = dict(tree(main))
    assert sorted(found) == sorted([*NOUNS, *SINGLE])
    groups = {name: group for name, group in found.items() if isinstance(group, click.Group)}
    assert {name: sorted(dict(tree(group))) for name, group in groups.items()} == NOUNS


def test_every_command_has_its_own_name_and_a_whole_sentence_in_the_list() -> None:
    for name, command in tree(main):
        members = [(name, command), *(tree(command) if isinstance(command, click.Group) else ())]
        for named, each in members:
            assert each.name == named
            assert each.short_help
            assert "..." not in each.short_help


def test_there_is_no_command_of_another_name() -> None:
    assert main.get_command(click.Context(main), "dead_letters") is None


def test_a_misspelt_command_names_the_nearest_one() -> None:
    result = CliRunner().invoke(main, ["strem", "pause"])
    assert (result.exit_code, "stream" in result.stderr) == (2, True), result.output
    result = CliRunner().invoke(main, ["stream", "puase"])
    assert (result.exit_code, "pause" in result.stderr) == (2, True), result.output
