"""Tests wait for conditions (tests/integration/waiting.py): none sets a deadline or a sleep of its own.

A line where the time itself is tested, or where nothing waits for it, ends with `# time: <reason>`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
HELPER = TESTS / "integration" / "waiting.py"
REASON = "# time: "

CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
LIMITED = {"wait", "join", "result", "communicate", "publish", "stop", "call", "awaitTermination", "acquire"}
"""Calls whose last positional number is a limit."""
NAMES = {"timeout", "seconds", "patience", "socket_timeout"}
WORDS = ("sleep(", "monotonic(", "perf_counter(")


def breaches(source: str) -> Iterator[tuple[int, str]]:
    """Give the lines of a test that set a deadline or a sleep, with what they do."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        what = _breach(node)
        place = node.args[0] if isinstance(node, ast.arguments) and node.args else node
        first, last = getattr(place, "lineno", 1), getattr(place, "end_lineno", 1)
        if what and not any(REASON in line for line in lines[first - 1 : last]):
            yield first, what


def _breach(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _call(node)
    if isinstance(node, ast.arguments):
        return _defaults(node)
    if isinstance(node, ast.Attribute) and node.attr in CLOCKS:
        return f"reads the clock: {node.attr}"
    # Programs that tests give to other processes.
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import" in node.value:
        return next((f"a program with {word}" for word in WORDS if word in node.value), "")
    return ""


def _call(node: ast.Call) -> str:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "sleep" and not (node.args and _number(node.args[0]) == 0):
        return "sleeps"
    if name in ("wait_for", "timeout"):
        return f"sets a deadline: {name}"
    if name == "publish" and len(node.args) != 3:
        return ""
    if name in LIMITED and node.args and _number(node.args[-1]) is not None:
        return f"sets a limit: {name}"
    named = [each.arg for each in node.keywords if each.arg in NAMES and _number(each.value) is not None]
    return f"sets a limit: {named[0]}" if named else ""


def _defaults(node: ast.arguments) -> str:
    given = [*zip(node.args[len(node.args) - len(node.defaults) :], node.defaults, strict=True)]
    given += [(arg, value) for arg, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if value]
    named = [arg.arg for arg, value in given if arg.arg in NAMES and _number(value) is not None]
    return f"has a limit by default: {named[0]}" if named else ""


def _number(node: ast.expr) -> float | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _tests() -> list[Path]:
    return sorted(path for path in TESTS.rglob("*.py") if path not in (HELPER, Path(__file__)))


@pytest.mark.slow
def test_no_test_waits_a_fixed_time() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line} {what}"
        for path in _tests()
        for line, what in breaches(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join([*found, f"Wait for a condition instead: {HELPER}"])


@pytest.mark.parametrize(
    "source",
    [
        "time.sleep(0.1)",
        "await asyncio.sleep(pause)",
        "await asyncio.wait_for(task, 5)",
        "deadline = time.monotonic() + PATIENCE",
        "async with asyncio.timeout(10): pass",
        "process.communicate(timeout=30)",
        "thread.join(5)",
        "def wait(what, seconds=30.0): pass",
        "@pytest.mark.timeout(900)\ndef test(): pass",
        "PROGRAM = 'import time; time.sleep(3)'",
    ],
)
def test_each_way_to_wait_is_noticed(source: str) -> None:
    assert list(breaches(source))
