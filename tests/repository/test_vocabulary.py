"""Words of older releases are not in the code: one term for one concept, as in docs/concepts.md."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.repository.test_layout import FOLDERS, ROOT

FORMER: Final = re.compile(
    r"\b(lineages?|takeovers?|rewind\w*|rewound|re-?splits?|displaced|voided|carry_after|anew|mend(s|ed|ing)?)\b",
    re.IGNORECASE,
)
ALLOWED: Final = {
    "cli/main.py": {"rewind"},
    **{f"listeners/openlineage/{each}.py": {"lineage"} for each in ("__init__", "listener", "options")},
}
"""By file, words that it may have: the root command names the replacement of a former command, and lineage is
what OpenLineage calls the ways of data."""


def former_words(path: Path) -> set[str]:
    """Return the words of older releases in a file that may not have them."""
    found = {match[0].lower() for match in FORMER.finditer(path.read_text(encoding="utf-8"))}
    return found - ALLOWED.get(str(path.relative_to(ROOT)), set())


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_no_word_of_an_older_release_is_used(folder: str) -> None:
    found = {
        str(path.relative_to(ROOT)): words
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (words := former_words(path))
    }
    assert found == {}


def test_a_word_of_an_older_release_is_noticed() -> None:
    assert [match[0] for match in FORMER.finditer("A lineage is voided, mended and taken over anew")] == [
        "lineage",
        "voided",
        "mended",
        "anew",
    ]
