"""Every command that a text of the code names exists; one with options can be typed as it stands.

The pages have a test of their own (tests/docs), and so have the sentences of problems (tests/cli).
"""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from sluicegate.cli import main
from tests.repository.test_layout import FOLDERS

ROOT: Final = Path(__file__).parents[2]
_WORDS: Final = 5
"""So many words make a sentence."""
NO_COMMAND: Final = {"for", "is", "needs", "that", "writes", "with"}
"""Words after the name of the product in sentences about it."""
_NAMED: Final = re.compile(r"sluicegate ([a-z].*)", re.DOTALL)
_FIELD: Final = re.compile(r"\{\w*\}")
_HEAD: Final = "SNAPSHOT:IDENTITY"
_END: Final = '.,;:)`"'


def sentences(path: Path) -> Iterator[str]:
    """Give the texts of a module with so many words, its docstrings left out; {} is what is filled in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(each) for each in node.values}
    for node in ast.walk(tree):
        text = None if id(node) in skipped else _text(node)
        if text is not None and len(re.findall(r"[A-Za-z]{2,}", text)) >= _WORDS:
            yield text


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values)
    return None


def commands_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of a sentence as their group's path and their words; placeholders become 1."""
    rest = _FIELD.sub("1", " ".join(text.split())).replace(_HEAD, "1:a")
    while (found := _NAMED.search(rest)) is not None:
        rest = found[1]
        # In backquotes, the command is everything up to the next one.
        quoted = found.start() > 0 and found.string[found.start() - 1] == "`"
        words = found[1].partition("`")[0].split() if quoted else found[1].split()
        if quoted or words[0].strip(_END) not in NO_COMMAND:
            yield " ".join(words[:3]), list(_words(words, quoted=quoted))


def _words(words: list[str], *, quoted: bool) -> Iterator[str]:
    """Yield the words that belong to the command."""
    command: click.Command = main
    after_option = False
    for word in words:
        bare = word if quoted else word.rstrip(_END)
        in_group = isinstance(command, click.Group)
        if not quoted and not in_group and not after_option and not bare.startswith("--"):
            return
        yield bare
        if in_group and not bare.startswith("--"):
            found = command.get_command(click.Context(command), bare)  # type: ignore[attr-defined]
            if found is None:
                return
            command = found
        after_option = bare.startswith("--") and _takes_value(command, bare)
        if bare != word:
            return


def _takes_value(command: click.Command, option: str) -> bool:
    params = command.get_params(click.Context(command))
    return any(option in each.opts and not getattr(each, "is_flag", False) for each in params)


def problem_of(words: list[str]) -> str | None:
    """Return the reason why these words are no command line; without options, the command has to exist."""
    command: click.Command = main
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("--"):
        found = command.get_command(click.Context(command), rest[0])
        if found is None:
            return f"no command {rest[0]}"
        command = found
        rest.pop(0)
    if not rest:
        return None
    try:
        command.make_context(words[0], rest)
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        return error.format_message()
    return None


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the commands settings: parsing reads them."""
    config = tmp_path / "sluicegate.toml"
    config.write_text('[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[streams.1]\ntable = "/data/1"\n')
    monkeypatch.setenv("SLUICEGATE_CONFIG", str(config))


@pytest.mark.slow
@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_the_commands_of_the_code_can_be_typed(folder: str) -> None:
    wrong = {
        f"{path.relative_to(ROOT)}: sluicegate {named}": fault
        for path in sorted((ROOT / folder).rglob("*.py"))
        for text in sentences(path)
        for named, words in commands_of(text)
        if (fault := problem_of(words))
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("Resume it: sluicegate stream resume --stream {stream}", [None]),
        ("see `sluicegate status --stream {}`, or `sluicegate stream pause`", [None, None]),
        ("use sluicegate region remove --stream {} --region {}; then start the query", [None]),
        ("see: sluicegate stream forget --help", [None]),
        ("use sluicegate pause --stream {}", ["no command pause"]),
        ("use sluicegate stream paus", ["no command paus"]),
        ("use sluicegate region remove --stream {}, or not", ["Missing option '--region'."]),
        ("use `sluicegate run --fast`", ["No such option '--fast'."]),
        ("the releases of sluicegate that fit together", []),
    ],
)
def test_a_command_that_cannot_be_typed_is_noticed(text: str, faults: list[str | None]) -> None:
    found = [problem_of(words) for _, words in commands_of(text)]
    assert [each and each.partition(" (")[0].strip() for each in found] == faults


def test_the_words_are_split_as_a_shell_does() -> None:
    (found,) = (words for _, words in commands_of("`sluicegate stream cancel --stream {} --name {}`"))
    assert found == shlex.split("stream cancel --stream 1 --name 1")
