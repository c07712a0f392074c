"""Sentences that the product prints, found in its code, and the tests that play what they advise."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_WORDS: Final = 5
"""So many words make a sentence."""


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


def unplayed(found: Iterable[str], played: Mapping[str, str], facts: Iterable[str]) -> list[str]:
    """Return the sentences that no entry names a part of, and that are no fact."""
    known = set(facts)
    return [text for text in found if text not in known and not any(part in text for part in played)]


def stale(found: Iterable[str], parts: Iterable[str]) -> list[str]:
    """Return the parts that no sentence has any more."""
    texts = list(found)
    return [part for part in parts if not any(part in text for text in texts)]


def problem(part: str, player: str) -> str | None:
    """Return why a test does not play the advice with this part, if so.

    A test, `path::name` or `path::name::phrase`, has the phrase, or else the part itself, among the texts of
    its file.
    """
    path, *rest = player.split("::")
    name, phrase = rest[0], rest[-1] if rest[1:] else part
    if not (ROOT / path).exists():
        return f"no file {path}"
    names, texts = _test_file(ROOT / path)
    if name not in names:
        return f"{path} has no {name}"
    return None if any(phrase in text for text in texts) else f"{path} does not have: {phrase}"


@cache
def _test_file(path: Path) -> tuple[frozenset[str], tuple[str, ...]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = {node.name for node in ast.walk(tree) if isinstance(node, functions)}
    texts = [text for node in ast.walk(tree) if (text := _text(node)) is not None]
    return frozenset(names), tuple(texts)
