"""The rules that decide a commit's content stay within 1,200 lines, and the core does not grow.

`docs/adr/0020-the-size-of-the-core.md` says why the core is as large as it is.
"""

import ast
import io
import tokenize
from pathlib import Path
from typing import Final

CORE: Final = Path(__file__).parents[2] / "coordinator" / "core"
RULES: Final = (
    "log",
    "log_state",
    "replica",
    "registration",
    "progress",
    "pending",
    "cuts",
    "decisions",
    "commands",
)
MOST_CODE_OF_RULES: Final = 1_200
MOST_LINES: Final = 3_680
_NO_CODE: Final = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def code_lines(source: str) -> int:
    """Count the lines that have a token of code: no comment, no docstring, no blank line."""
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        for each in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                documentation.update(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documentation)


def test_comments_and_docstrings_are_no_code() -> None:
    assert code_lines('"""Doc.\n\nMore."""\n\n# why\nx = (\n    1,  # one\n)\n') == 3


def test_the_rules_of_content_are_within_their_limit() -> None:
    sizes = {name: code_lines((CORE / f"{name}.py").read_text(encoding="utf-8")) for name in RULES}
    assert sum(sizes.values()) <= MOST_CODE_OF_RULES, sizes


def test_the_core_does_not_grow() -> None:
    sizes = {path.name: path.read_text(encoding="utf-8").count("\n") for path in CORE.glob("*.py")}
    assert sum(sizes.values()) <= MOST_LINES, sizes
