"""The reference pages are made from the code. Each key, option, code and change of a state has a meaning."""

import re

import pytest

from sluicegate.events.problems import CauseCode, Code
from tools.docs.codes_page import groups
from tools.docs.generated import render
from tools.docs.markdown import cell
from tools.docs.states_page import REGION


def rows(page: str) -> list[list[str]]:
    """Return the cells of all rows of a page."""
    lines = [line for line in render()[f"reference/{page}"].splitlines() if line.startswith("| ")]
    return [[part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("page", ["settings.md", "cli.md", "codes.md", "metrics.md", "states.md"])
def test_each_row_has_a_meaning(page: str) -> None:
    found = rows(page)
    assert found
    assert [row[0] for row in found if not row[-1]] == []


@pytest.mark.slow
@pytest.mark.parametrize("codes", [Code, CauseCode])
def test_each_code_has_one_row(codes: type[Code] | type[CauseCode]) -> None:
    named = [name for members in groups(codes).values() for name in members]
    assert sorted(named) == sorted(each.name for each in codes)
    shown = [row[0] for row in rows("codes.md")]
    assert {f"`{each}`" for each in codes} <= {*shown}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "kind", "default"),
    [
        (
            "`alignment_timeout`<br>`SLUICEGATE_STREAMS__NAME__ALIGNMENT_TIMEOUT`",
            "duration above 0",
            '`"10s"`',
        ),
        ("`port`<br>`SLUICEGATE_HTTP__PORT`", "number, 0 to 65535", "`8080`"),
        ("`bootstrap_servers`<br>`SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS`", "text", "required"),
        (
            "`level`<br>`SLUICEGATE_LOG__LEVEL`",
            '`"debug"` or `"info"` or `"warning"` or `"error"`',
            '`"info"`',
        ),
    ],
)
def test_a_setting_has_its_type_and_default(key: str, kind: str, default: str) -> None:
    assert [key, kind, default] in [row[:3] for row in rows("settings.md")]


@pytest.mark.slow
def test_each_change_of_a_region_has_a_row() -> None:
    shown = [row[1:2] + row[3:] for row in rows("states.md")[1:]]
    assert shown == [[f"`{each.event}`", each.cause] for each in REGION]


def test_a_cell_is_one_line_without_marks_of_html() -> None:
    assert cell("a | b\n<c> `<d>`") == "a \\| b &lt;c> `<d>`"
