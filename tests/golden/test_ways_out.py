"""Each problem that the core raises occurs in a golden case that goes on to commit: its way out works."""

import re
from typing import Final

import pytest

from sluicegate.coordinator.observe import messages
from sluicegate.events.problems import Code
from tests.golden.test_cases import FILES

OF_THE_SERVICE: Final = frozenset(
    {
        Code.NO_POLICY,
        Code.FILE_NAME_DIFFERS,
        Code.LOCATION_NOT_ALLOWED,
        Code.LOCATION_AMBIGUOUS,
        Code.PATH_ESCAPES,
        Code.OTHER_FORMAT,
        Code.BODY_UNREADABLE,
        Code.TOO_MANY_FILES,
        Code.SKIPPED_LATE,
        Code.TEXTS_TOO_LARGE,
        Code.TOO_MANY_REGIONS,
        Code.LOG_DISCONTINUOUS,
        Code.OTHER_PARTITION,
        Code.OTHER_COMMIT_USER,
        Code.TABLE_UNFIT,
        Code.RETENTION,
        Code.EVENTS_LIMITED,
        Code.STATE_RECORD_NEWER,
        Code.STATE_RECORD_MALFORMED,
    }
)
"""Raised by the service for files, topics, settings and state records, which golden cases do not have.

`test_texts.py` has those whose limits are too large for a case. The coordinator of a golden case logs its
policy before the first registration, and no newer release takes over from it.
"""
BLOCKING: Final = sorted(
    {*messages.REFUSAL_MESSAGES, *messages.REGION_MESSAGES, *messages.STREAM_MESSAGES} - OF_THE_SERVICE
)
_COMMIT: Final = re.compile(r"^> Announce commit\.(partially_)?visible ", re.MULTILINE)


def commits_after(code: Code) -> list[str]:
    """Return the golden cases with a reaction that has this code, and a later commit."""
    named = re.compile(rf"^> (?:Announce|conditions).*(?<![a-z.-]){code.value}(?![a-z-])", re.MULTILINE)
    found = []
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        first = named.search(text)
        if first is not None and _COMMIT.search(text, first.end()):
            found.append(path.stem)
    return found


@pytest.mark.parametrize("code", BLOCKING)
def test_a_stream_commits_after_the_way_out_of_a_problem(code: Code) -> None:
    assert commits_after(code)


@pytest.mark.parametrize("code", sorted(OF_THE_SERVICE))
def test_only_codes_that_no_case_has_are_left_to_the_service(code: Code) -> None:
    assert commits_after(code) == []
