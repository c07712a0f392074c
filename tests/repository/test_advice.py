"""Each advice outside of the core stands in advice.txt, best with the test that follows it.

Under `played` is the test that follows an advice to what it promises, under `printed` one that only sees it,
under `silent` what no test prints. A new advice fails here until it is listed; `silent` may only get shorter.
"""

import re
from pathlib import Path

import pytest

from tests.repository.advice import ROOT, problem, sentences, stale, unplayed

PLACES = (
    *("cli", "coordinator", "coordinator/dead_letters", "coordinator/membership", "coordinator/runtime"),
    *("coordinator/settings", "coordinator/stream", "coordinator/telemetry", "events", "failpoints", "kafka"),
    *("coordinator/listeners", "listeners", "listeners/mark_done", "listeners/small_files", "listeners/tags"),
    *("lakes", "lakes/delta", "lakes/paimon", "replay", "writer_hooks", "writer_hooks/spark"),
    *("writer_hooks/spark/regions", "writer_hooks/upload"),
)
TOOLS = {"diagrams.py", "schemas.py", "memory.py"}
"""For who develops, or tests."""
OF_CODES = {
    "message.py",
    "event_messages.py",
    "refusal_messages.py",
    "region_messages.py",
    "stream_messages.py",
}
"""Texts of codes. tests/golden/test_ways_out.py plays them, tests/cli/test_messages.py parses commands."""
VERBS = (
    "add|alter|begin|change|check|choose|close|configure|convert|copy|correct|create|delete|drop|expire|free|give|go|grant"
    "|install|leave|let|list|look|lower|make|mend|move|name|pass|press|put|raise|record|remove|repeat|report"
    "|restart|restore|resume|rewind|run|see|send|set|start|stop|take|try|upgrade|use|wait|write"
)
ADVICE = re.compile(rf"(?:^|[.;,:(] |\b(?:or|and|then|else) )(?:{VERBS})\b|sluicegate [a-z]", re.IGNORECASE)
TABLE = (Path(__file__).parent / "advice.txt").read_text(encoding="utf-8")


def section(name: str) -> list[str]:
    """Return the lines of a section of the table."""
    found = TABLE.partition(f"\n== {name}\n")[2].partition("\n== ")[0]
    return [line for line in found.splitlines() if line]


def players(name: str) -> dict[str, str]:
    """Return the advices of a section, each with its test as `problem` takes it."""
    lines = section(name)
    found = {}
    for part, test, phrase in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        path, function = test.split()
        found[part] = f"tests/{path}::{function}::{phrase.strip()}"
    return found


PLAYED, PRINTED = players("played"), players("printed")
SILENT, HELP = section("silent"), section("help")


def told() -> list[str]:
    files = [
        path
        for place in PLACES
        for path in sorted((ROOT / place).glob("*.py"))
        if path.name not in TOOLS | OF_CODES
    ]
    return [text for path in files for text in sentences(path) if ADVICE.search(text)]


def test_every_advice_stands_in_a_list() -> None:
    assert unplayed(told(), {**PLAYED, **PRINTED, **dict.fromkeys(SILENT, "")}, HELP) == []


@pytest.mark.parametrize(("part", "player"), [*PLAYED.items(), *PRINTED.items()])
def test_its_test_is_there(part: str, player: str) -> None:
    assert problem(part, player) is None


def test_every_entry_is_of_an_advice() -> None:
    assert stale(told(), [*PLAYED, *PRINTED, *SILENT, *HELP]) == []


def test_an_advice_that_stands_in_no_list_is_seen() -> None:
    text = "region {} is frozen; thaw it, and start the query"
    assert ADVICE.search(text)
    assert unplayed([text], PLAYED, HELP) == [text]


def test_the_silent_ones_get_no_more() -> None:
    assert len(SILENT) <= 0
