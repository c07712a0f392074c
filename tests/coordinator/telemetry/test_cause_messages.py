"""Every cause has a sentence with its arguments, and the message of a problem includes it."""

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.coordinator.observe.messages import CAUSES, MESSAGES, format_cause, format_problem
from sluicegate.events.problems import Cause, CauseCode, Code, Problem
from tests.events.strategies import bodies_of

WHOLE: Final = {
    "snapshot": 71,
    "expected": 62,
    "stray": 53,
    "oldest": 54,
    "number": 45,
    "other": 36,
    "partition": 7,
    "region": "EWR",
    "problem": "other-format",
    "names": ("n1", "n2"),
}
DETAIL: Final = "some text from outside"
_STRAY: Final = ("stray", "oldest")
ARGUMENTS: Final[dict[CauseCode, tuple[str, ...]]] = {
    CauseCode.TABLE_EMPTY: ("snapshot", *_STRAY),
    CauseCode.DECISION_LACKING: ("number", "other", *_STRAY),
    CauseCode.HISTORY_EXPIRED: ("snapshot", *_STRAY),
    CauseCode.HEAD_OLDER: ("snapshot", "expected", *_STRAY),
    CauseCode.RECORDED_EXPIRED: ("snapshot", *_STRAY),
    CauseCode.RECORDED_DIFFERS: ("snapshot", *_STRAY),
    CauseCode.RECORDED_OVERWRITTEN: ("snapshot", *_STRAY),
    CauseCode.SNAPSHOT_MISSING: ("snapshot", *_STRAY),
    CauseCode.MARKER_ROLLED_BACK: ("snapshot", *_STRAY),
    CauseCode.OTHER_WRITER: ("snapshot", "expected", "first"),
    CauseCode.OTHER_TABLE: (),
    CauseCode.CHECKS_OUTDATED: (),
    CauseCode.SNAPSHOTS_GONE: ("expected",),
    CauseCode.NO_HARD_LINKS: ("detail",),
    CauseCode.NO_CONDITIONAL_PUT: ("detail",),
    CauseCode.EVENT_UNUSABLE: ("problem", "names", "detail"),
    CauseCode.POSITION_UNREADABLE: ("snapshot", "detail"),
    CauseCode.POSITION_UNPROVEN: ("snapshot",),
    CauseCode.SUCCESSOR_GONE: ("snapshot",),
    CauseCode.WITHDRAWN: ("snapshot",),
    CauseCode.TAKER_UNREADABLE: ("snapshot", "detail"),
    CauseCode.TAKER_GONE: ("snapshot",),
    CauseCode.LOG_ENDS_EARLIER: ("number",),
    CauseCode.LOG_BEGINS_LATER: ("number",),
    CauseCode.LOG_END_LOST: ("number",),
    CauseCode.OTHER_EVENT: (),
    CauseCode.TOPIC_DELETES: ("first", "number"),
    CauseCode.RELEASE_FAILED: ("detail",),
    CauseCode.EVENT_ABSENT: ("number", "partition"),
    CauseCode.EVENT_DELETED: ("number", "partition", "other"),
    CauseCode.NOT_AN_EVENT: ("number", "partition", "problem"),
    CauseCode.MESSAGE_TOO_LARGE: ("first", "number", "other"),
    CauseCode.EVENT_OVER_LIMIT: ("first", "second"),
    CauseCode.RECORD_TOO_LARGE: ("number", "other"),
    CauseCode.FILES_MISCOUNTED: ("number", "other"),
    CauseCode.PATH_REPEATED: ("first",),
    CauseCode.CONTROL_CHARACTERS: (),
    CauseCode.QUERY_IN_LOCATION: (),
    CauseCode.OTHER_MACHINE: ("first",),
    CauseCode.ENCODED_DOTS: (),
    CauseCode.UNSIGNED: (),
    CauseCode.KEY_UNKNOWN: ("first",),
    CauseCode.KEY_RETIRED: ("first",),
    CauseCode.SIGNATURE_WRONG: ("first",),
    CauseCode.SIGNATURE_OLD: ("number", "other"),
    CauseCode.UNKNOWN: ("detail",),
}
"""By cause, the arguments that its sentence has; the place that finds the cause sets them."""
SHOWN: Final = {**WHOLE, "names": "n1, n2", "first": "n1", "detail": DETAIL}


def _between(first: CauseCode, last: CauseCode) -> list[CauseCode]:
    """Return the causes from the first to the last, both included."""
    codes = list(CauseCode)
    return codes[codes.index(first) : codes.index(last) + 1]


_TABLE = _between(CauseCode.TABLE_EMPTY, CauseCode.MARKER_ROLLED_BACK)
_COMMIT = _between(CauseCode.OTHER_WRITER, CauseCode.TAKER_GONE)
_BODY = _between(CauseCode.EVENT_ABSENT, CauseCode.NOT_AN_EVENT)
_LOCATION = [*_between(CauseCode.CONTROL_CHARACTERS, CauseCode.ENCODED_DOTS), CauseCode.UNKNOWN]
_SIGNATURE = _between(CauseCode.UNSIGNED, CauseCode.SIGNATURE_OLD)
_PLACES: Final = {
    **dict.fromkeys(_TABLE, (Code.ABSENCE_UNPROVEN, Code.TABLE_CONTRADICTS)),
    **dict.fromkeys(_COMMIT, (Code.COMMIT_REFUSED, Code.RETRYING)),
    CauseCode.LOG_ENDS_EARLIER: (Code.LOG_DISCONTINUOUS,),
    CauseCode.LOG_BEGINS_LATER: (Code.LOG_DISCONTINUOUS,),
    CauseCode.LOG_END_LOST: (Code.LOG_DISCONTINUOUS,),
    CauseCode.OTHER_EVENT: (Code.LOG_DISCONTINUOUS,),
    CauseCode.TOPIC_DELETES: (Code.RETENTION,),
    CauseCode.RELEASE_FAILED: (Code.RECORD_UNREADABLE,),
    **dict.fromkeys(_BODY, (Code.BODY_UNREADABLE, Code.COMMIT_REFUSED, Code.RETRYING)),
    CauseCode.MESSAGE_TOO_LARGE: (Code.RETRYING,),
    CauseCode.EVENT_OVER_LIMIT: (Code.RETRYING,),
    CauseCode.RECORD_TOO_LARGE: (Code.RETRYING,),
    CauseCode.FILES_MISCOUNTED: (Code.MALFORMED_BODY, Code.BODY_UNREADABLE, Code.COMMIT_REFUSED),
    CauseCode.PATH_REPEATED: (Code.MALFORMED_BODY, Code.BODY_UNREADABLE, Code.COMMIT_REFUSED),
    **dict.fromkeys(_SIGNATURE, (Code.SIGNATURE,)),
    **dict.fromkeys(_LOCATION, (Code.LOCATION_AMBIGUOUS, Code.COMMIT_REFUSED)),
}
"""By cause, the problems that have it."""


def whole(code: CauseCode) -> str:
    """Return the sentence of a cause with all arguments."""
    return format_cause(Cause.model_validate({"code": code, **WHOLE}), DETAIL)


def test_every_cause_has_a_sentence() -> None:
    assert {*CAUSES} == {*ARGUMENTS} == {*_PLACES} == {*CauseCode}
    assert not any(text.endswith((".", ":")) or text[0].isupper() for text in CAUSES.values())


@pytest.mark.parametrize("code", CauseCode)
def test_exactly_its_arguments_are_in_the_sentence(code: CauseCode) -> None:
    text = whole(code)
    assert {name for name, value in SHOWN.items() if re.search(rf"\b{value}\b", text)} - {"first"} == {
        name for name in ARGUMENTS[code] if name not in {"first", "second"}
    }
    assert ("first" in ARGUMENTS[code]) <= ("n1" in text)
    assert ("second" in ARGUMENTS[code]) <= ("n2" in text)


@pytest.mark.slow
@given(bodies_of(Problem))
def test_any_cause_gives_sentences_and_changes_no_identity(problem: Problem) -> None:
    assert format_problem(problem, "flights").endswith(".")
    assert problem.identity == problem.model_copy(update={"cause": None, "detail": ""}).identity


@pytest.mark.slow
@given(st.builds(Cause, code=st.sampled_from(CauseCode), names=st.lists(st.text(max_size=9)).map(tuple)))
def test_placeholders_in_arguments_stay_as_they_are(cause: Cause) -> None:
    caused = cause.model_copy(update={"code": CauseCode.PATH_REPEATED, "names": ("{number} [x]",)})
    assert format_cause(caused) == "the path {number} [x] is listed twice"
    assert format_cause(cause)


def test_logs_show_the_code_with_the_arguments_that_are_set() -> None:
    assert (
        str(Cause(code=CauseCode.EVENT_ABSENT, number=0, partition=3)) == "event-absent number=0 partition=3"
    )


def test_messages_without_a_place_for_a_cause_have_none() -> None:
    """A problem with a cause has a message that shows it."""
    shows = {code for code, message in MESSAGES.items() if "{detail}" in "".join(message)}
    assert {code for codes in _PLACES.values() for code in codes} <= shows
