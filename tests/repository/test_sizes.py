"""No file is longer than 400 lines, and no function longer than 40.

The benchmarks are left out: a figure that is published belongs to the code that measured it.
"""

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from tests.repository.test_layout import EXECUTED, FOLDERS, ROOT

MEASURED: Final = {"bench"}
MOST_LINES: Final = 400
MOST_LINES_OF_A_FUNCTION: Final = 40


def long_functions(source: str) -> Iterator[tuple[str, int]]:
    """Yield the functions and methods that are too long, each with its lines from `def` to its end."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_LINES_OF_A_FUNCTION:
                yield node.name, lines


def function_of(lines: int) -> str:
    return "@decorator\ndef long():\n" + "    pass\n" * (lines - 1)


@pytest.mark.parametrize("folder", sorted((FOLDERS | EXECUTED) - MEASURED))
def test_files_and_functions_are_short(folder: str) -> None:
    sources = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    assert sources
    assert {name: n for name, text in sources.items() if (n := text.count("\n")) > MOST_LINES} == {}
    assert {name: found for name, text in sources.items() if (found := [*long_functions(text)])} == {}


@pytest.mark.parametrize(("source", "found"), [(function_of(40), []), (function_of(41), [("long", 41)])])
def test_a_long_function_is_noticed(source: str, found: list[tuple[str, int]]) -> None:
    assert [*long_functions(source)] == found


def test_a_long_method_and_a_long_inner_function_are_noticed() -> None:
    inner = "\n".join(f"        {line}" for line in function_of(41).splitlines())
    source = f"class Own:\n    async def method(self):\n{inner}\n"
    assert [*long_functions(source)] == [("method", 43), ("long", 41)]
