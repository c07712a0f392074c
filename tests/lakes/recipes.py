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


def of_small_files(beginning: str) -> list[str]:
    """Return the statements of the page of small files that begin so."""
    page = (_PAGES.parent / "small-files.md").read_text(encoding="utf-8")
    blocks = "".join(re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    found = [each.strip() for each in blocks.split(";")]
    return [each for each in found if each.startswith(beginning)]
