"""The reference page of the codes of conditions and causes, with their sentences."""

import ast
import inspect
import re
import tokenize
from collections.abc import Iterator, Mapping
from enum import StrEnum
from io import StringIO
from typing import Final

from sluicegate.coordinator.observe.messages import CAUSES, MESSAGES, fill
from sluicegate.events.problems import CauseCode, Code
from tools.docs.markdown import cell

HEADING: Final = """\
# Codes and sentences

Status, logs, metrics, answers and dead letters name the reason of a problem as a code. Here is the sentence
that is printed for each code, with capitals in place of names and numbers. Parts without a value are left
out. [Operations](../operations.md#condition-codes) has the codes of conditions in the order of an operator's
work, and [the contract for writers](../writers/contract.md#refusals) those of refusals, by the reaction of
a driver.

A program compares codes, never sentences: a sentence may change in any release.
"""
_CAUSES: Final = """
## Causes

A problem may have a cause, which is the part `DETAIL` of its sentence.
"""


def render() -> str:
    """Return the page."""
    return HEADING + "".join(_conditions()) + _CAUSES + "".join(_causes())


def groups(codes: type[StrEnum]) -> Mapping[str, list[str]]:
    """Return the names of the members below each comment of an enumeration, in the order of the source."""
    source = inspect.getsource(codes)
    found: dict[str, list[str]] = {}
    lines = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip()
    }
    (tree,) = ast.parse(source).body
    for member in tree.body if isinstance(tree, ast.ClassDef) else ():
        if isinstance(member, ast.Assign) and isinstance(member.targets[0], ast.Name):
            comment: list[str] = []
            line = member.lineno - 1
            while line in lines:
                comment.insert(0, lines[line])
                line -= 1
            if comment:
                found[" ".join(comment)] = []
            next(reversed(found.values())).append(member.targets[0].id)
    return found


def _title(comment: str) -> str:
    """Return the first part of a comment: the others are for the reader of the code."""
    return re.split(r"[:;.]", comment)[0]


def _sentence(template: str) -> str:
    """Return a template with all its parts, and capitals for its values."""
    return cell(fill(template.replace("[", "").replace("]", ""), {}))


def _conditions() -> Iterator[str]:
    for comment, names in groups(Code).items():
        yield f"\n## {_title(comment)}\n\n| code | sentence | way out |\n|---|---|---|\n"
        for name in names:
            message = MESSAGES[Code[name]]
            reason = _sentence(f"{message.what}: {message.why}.")
            yield f"| `{Code[name]}` | {reason} | {_sentence(message.remedy)}. |\n"


def _causes() -> Iterator[str]:
    for comment, names in groups(CauseCode).items():
        yield f"\n### {_title(comment)}\n\n| code | sentence |\n|---|---|\n"
        yield from (f"| `{CauseCode[name]}` | {_sentence(CAUSES[CauseCode[name]])} |\n" for name in names)
