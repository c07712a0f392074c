"""Text of the product itself is a code: details of problems and reasons of answers are from outside.

Tests and the simulator may invent texts from outside. Exceptions of adapters (BadFiles, TableRefused,
LakeUnavailable) have texts, which become details.
"""

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from tests.repository.test_layout import FOLDERS, ROOT

PLACES: Final = sorted(FOLDERS - {"simulator", "demo", "listeners"})
"""Results of listeners have sentences, by their port."""
ANSWERS: Final = {
    "Unproven",
    "Conflict",
    "NotPublished",
    "OutcomeUnknown",
    "Refused",
    "Failed",
    "TableUnfit",
}
"""Results whose first argument, `reason`, becomes a detail."""


def own_texts(source: str) -> Iterator[tuple[int, str]]:
    """Give the lines where text of the product becomes a detail or a reason, with that text."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for given in _given(node):
            yield from ((given.lineno, text) for text in _words(given, tree))


def _given(node: ast.AST) -> Iterator[ast.expr]:
    """Give the values of details and reasons."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ANSWERS:
            yield from node.args[:1]
        names = {"detail", "reason"} if name in ANSWERS else {"detail"} if name == "Problem" else set[str]()
        yield from (each.value for each in node.keywords if each.arg in names)
    if isinstance(node, ast.Dict):
        # The update of a copy.
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "detail":
                yield value


def _words(given: ast.expr, tree: ast.Module) -> Iterator[str]:
    """Give the literal words of an expression, and of the assignments to its variables."""
    yield from _literals(given)
    for node in ast.walk(given):
        if isinstance(node, ast.Name):
            for assigned in _assigned(node.id, tree):
                yield from _literals(assigned)


def _literals(node: ast.AST) -> Iterator[str]:
    """Give the texts with letters; punctuation joins parts from outside, keys and encodings are names."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if any(letter.isalpha() for letter in node.value):
            yield node.value
    elif isinstance(node, ast.Subscript):
        yield from _literals(node.value)
    elif not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "decode"):
        for each in ast.iter_child_nodes(node):
            yield from _literals(each)


def _assigned(name: str, tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _bound(target, node.value, name)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield from _bound(node.target, node.value, name)


def _bound(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr]:
    if isinstance(target, ast.Name) and target.id == name:
        yield value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for each, part in zip(target.elts, value.elts, strict=False):
            yield from _bound(each, part, name)


@pytest.mark.slow
@pytest.mark.parametrize("folder", PLACES)
def test_no_text_of_the_product_is_a_detail(folder: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}": text
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in own_texts(path.read_text(encoding="utf-8"))
    }
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        'Problem(code=code, detail="the log ends")',
        'Problem(code=code, detail=f"the log ends at {end}")',
        'Problem(code=code, detail=known or "not known yet")',
        'why = f"the log ends at {end}"\nProblem(code=code, detail=why)',
        'failed, why = 1, f"failed at it ({error})"\nProblem(code=code, detail=why)',
        'problem.model_copy(update={"detail": "the files are lost"})',
        'Refused("no hard links")',
        'OutcomeUnknown("lost")',
        'port.OutcomeUnknown(f"snapshot {number} was put")',
        'Unproven(reason="nothing proves it", expired=True)',
    ],
)
def test_a_text_of_the_product_is_noticed(line: str) -> None:
    assert list(own_texts(line)) != []


@pytest.mark.parametrize(
    "line",
    [
        "Problem(code=code, detail=str(error))",
        'Problem(code=code, detail=f"{type(error).__name__}: {error}")',
        'Problem(code=code, detail=body.table or "")',
        'Problem(code=code, detail=raw.decode("utf-8"))',
        'Problem(code=code, detail=first["msg"])',
        "Refused(str(error), Cause(code=CauseCode.NO_HARD_LINKS))",
        'Finding(check, detail="agrees with the record")',
    ],
)
def test_a_text_from_outside_is_none(line: str) -> None:
    assert list(own_texts(line)) == []
