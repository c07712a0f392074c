"""Recipes of maintenance, as the pages of the formats show them."""

import re
from pathlib import Path
from typing import Final

_PAGES: Final = Path(__file__).parents[2] / "docs" / "formats"


def recipe(lake: str, language: str) -> str:
    """Return the one code block of a language on the page of a format."""
    page = (_PAGES / f"{lake}.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(found)


def statements(lake: str) -> list[str]:
    """Return the SQL statements of a recipe, in order."""
    lines = [line.partition("--")[0] for line in recipe(lake, "sql").splitlines()]
    return [each.strip() for each in "\n".join(lines).split(";") if each.strip()]
