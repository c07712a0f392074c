"""Names on the pages exist: commands, options, metrics, tests. Each code for an operator has a row."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from sluicegate.cli.main import main
from sluicegate.coordinator.observe.messages import REFUSAL_MESSAGES
from sluicegate.events.problems import Code
from tools.docs import metrics_page

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    page
    for pattern in ("docs/**/*.md", "*.md", "examples/*.*")
    for page in ROOT.glob(pattern)
    if page.name != "benchmarks.md"
)
NO_ROW: Final = frozenset(
    {
        *(Code.DUPLICATE, Code.SETTLED, Code.NOT_LIVE, Code.REPLAYED, Code.UNEXPECTED, Code.NOT_APPLICABLE),
        *(Code.STALE_POLICY, Code.OUT_OF_ORDER, Code.UNRESOLVED, Code.NOTHING_MOVES, Code.NOT_SEALED),
        *(Code.REGION_STALLED, Code.INCOMPLETE_CUT, Code.NOT_FULL, Code.TOO_MANY_BEHIND, Code.OTHER_DIGEST),
        Code.NOT_FORCED,
    }
)
"""Reasons for which an event has no effect: the log of a coordinator has them, and nobody has to act.

The codes of refusals are on the page of the contract, and their ways out on the generated page of codes.
"""


def problem_of(words: list[str]) -> str | None:
    """Return the first word of a command line that the program does not know."""
    command: click.Command = main
    context = click.Context(main, info_name="sluicegate")
    for place, word in enumerate(words[1:], 1):
        if word.startswith("--"):
            known = {option for each in command.get_params(context) for option in each.opts}
            if word.partition("=")[0] not in known:
                return word
        elif isinstance(command, click.Group):
            found = command.get_command(context, word)
            if found is None:
                return word
            command = found
            context = click.Context(command, context, info_name=word)
        elif not words[place - 1].startswith("--") and not takes_arguments(command):
            return word
    return None


def takes_arguments(command: click.Command) -> bool:
    return any(isinstance(each, click.Argument) for each in command.params)


def commands_of(text: str) -> Iterator[list[str]]:
    """Yield the command lines that a page shows."""
    for line in text.splitlines():
        shown = re.fullmatch(r"(?: {4,}|\$ )?(?:\S+=\S+ )*(sluicegate [a-z].*)", line)
        quoted = [] if shown else re.findall(r"`(sluicegate [a-z][^`]*)`", line)
        for each in [shown[1]] if shown else quoted:
            bare = re.split(r" #| > | 2>| \| | &$| \\{1,2}$", each)[0]
            yield shlex.split(bare)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_exists(page: Path) -> None:
    wrong = {" ".join(words): word for words in commands_of(page.read_text()) if (word := problem_of(words))}
    assert wrong == {}


def test_an_unknown_command_or_option_is_noticed() -> None:
    lines = (
        "    sluicegate stream pause --stream S   # now",
        "sluicegate void",
        "`sluicegate run --fast` or `sluicegate run`",
        *(
            "    sluicegate up --dir try \\",
            "    sluicegate up --fast try \\\\",
        ),  # in a page, and in a docstring
    )
    text = "\n".join(lines)
    found = [problem_of(words) for words in commands_of(text)]
    assert found == [None, "void", "--fast", None, None, "--fast"]


def test_each_code_has_a_row() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    named = {
        code
        for row in re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
        for code in re.findall(r"`([a-z-]+)`", row)
    }
    assert {str(code) for code in {*Code} - NO_ROW - {*REFUSAL_MESSAGES}} - named == set()


NO_METRICS: Final = {"sluicegate_commit", "sluicegate_feed", "sluicegate_flights_months", "sluicegate_months"}
"""A facet of OpenLineage; files and an asset of the examples for schedulers."""


def test_each_named_metric_exists() -> None:
    known = set(re.findall(r"`(sluicegate_\w+)`", metrics_page.render()))
    named = {
        name
        for page in PAGES
        for name in re.findall(r"\b(sluicegate_[a-z_]+)\b", page.read_text(encoding="utf-8"))
    }
    assert known
    assert named - known == NO_METRICS


def test_each_named_test_exists() -> None:
    named = {
        tuple(found)
        for page in PAGES
        for found in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8"))
    }
    assert named
    lacking = [
        f"{file}::{name}"
        for file, name in sorted(named)
        if re.search(rf"^(?:async )?def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
        is None
    ]
    assert lacking == []


def test_each_named_case_exists() -> None:
    """Cases of the core, on the page of the contract."""
    cases = ROOT / "tests" / "golden" / "cases"
    groups = "|".join(sorted(each.name for each in cases.iterdir() if each.is_dir()))
    text = (ROOT / "docs" / "consistency.md").read_text(encoding="utf-8")
    named = set(re.findall(rf"`((?:{groups})/\w+)`", text))
    assert named
    assert [name for name in sorted(named) if not (cases / f"{name}.txt").is_file()] == []
