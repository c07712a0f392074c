"""Every golden case comes out as it is in its file."""

from pathlib import Path

import pytest

from tests.golden.script import Script

CASES = Path(__file__).parent / "cases"
FILES = sorted(CASES.rglob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CASES).with_suffix("")))
def test_case(path: Path, rewrite: bool) -> None:
    expected = path.read_text(encoding="utf-8")
    found = Script().run(expected)
    if rewrite and found != expected:
        path.write_text(found, encoding="utf-8")
    elif not rewrite:
        assert found.splitlines() == expected.splitlines()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_case_states_its_purpose_and_expects_something(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert any(line.startswith("> ") for line in lines)


def test_an_expectation_that_is_not_met_is_seen() -> None:
    lines = Script().run("regions r1\nregister r1 q.0\n> something else\n").splitlines()
    assert lines[-1] != "> something else"
