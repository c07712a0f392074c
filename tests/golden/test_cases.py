"""Every golden case comes out as it stands in its file, and every rule and requirement has one."""

from pathlib import Path

import pytest

from tests.golden.script import Script

CASES = Path(__file__).parent / "cases"
FILES = sorted(CASES.rglob("*.txt"))
NEEDED = [
    *(f"rule{number}" for number in range(1, 8)),
    *(f"commit{step}" for step in range(1, 6)),
    *("void", "lineage", "recovery", "record", "policy", "peers", "listeners"),
    *(f"a{number}" for number in range(1, 4)),
    *(f"b{number}" for number in range(1, 6)),
    *(f"c{number}" for number in range(1, 4)),
    *(f"d{number}" for number in range(1, 10)),
]
"""Rules and steps of the protocol, and requirements; a case's name begins with what it shows."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CASES).with_suffix("")))
def test_case(path: Path, rewrite: bool) -> None:
    expected = path.read_text(encoding="utf-8")
    found = Script().run(expected)
    if rewrite and found != expected:
        path.write_text(found, encoding="utf-8")
    elif not rewrite:
        assert found.splitlines() == expected.splitlines()


@pytest.mark.parametrize("name", NEEDED)
def test_every_rule_and_requirement_has_a_case(name: str) -> None:
    assert [path for path in FILES if path.name.startswith(f"{name}_")], f"no case of {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_case_says_what_it_shows_and_expects_something(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert any(line.startswith("> ") for line in lines)


def test_an_expectation_that_is_not_met_is_seen() -> None:
    lines = Script().run("regions r1\nopen r1 q.0\n> cut.committed of nothing\n").splitlines()
    assert lines == ["regions r1", "open r1 q.0", "> Announce opening.answered r1 q.0 accepted at nothing"]
