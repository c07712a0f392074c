"""Every problem has a sentence with its arguments, a reason and a next step."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.coordinator.observe.messages import MESSAGES, Message, format_problem, listed, short_id
from sluicegate.events.problems import Code, Problem

WHOLE: Final = {
    "region": "EWR",
    "incarnation": "i1",
    "checkpoint": 71,
    "other": 62,
    "number": 53,
    "event": "e-44",
    "names": ("n1", "n2"),
    "detail": "some detail",
}

_NAMED: Final = ("region", "checkpoint")
_ARGUMENTS: Final[dict[Code, tuple[str, ...]]] = {
    Code.REGION_NOT_ALLOWED: ("region", "names"),
    Code.OTHER_TABLE: ("region", "names", "detail"),
    Code.REGION_NOT_ASSIGNED: ("region", "names"),
    Code.ASSIGNMENT_OLDER: ("number", "other"),
    Code.ASSIGNMENT_TOO_HIGH: ("number", "other"),
    Code.TOO_MANY_REGIONS: ("number", "other"),
    Code.TOO_MANY_SAVEPOINTS: ("number", "first"),
    Code.TEXTS_TOO_LARGE: ("region", "number", "other"),
    Code.ASSIGNMENT_WITHDRAWN: ("number", "other"),
    Code.ASSIGNMENT_DIFFERS: ("number", "names"),
    Code.ASSIGNMENT_OPEN: ("number", "names"),
    Code.ASSIGNMENT_UNRESOLVED: ("number", "other"),
    Code.ASSIGNMENT_AFTER_OTHER_CUT: ("number", "other"),
    Code.REGION_REMOVED: ("region", "number", "names"),
    Code.INCARNATION_ENDED: ("region", "incarnation"),
    Code.INCARNATION_OF_OTHER_REGION: ("region", "first"),
    Code.BASE_UNRESOLVED: ("region", "number"),
    Code.INCARNATION_LIVE: ("region", "incarnation"),
    Code.LOCATION_OLDER: ("region", "checkpoint", "other"),
    Code.SOURCE_DIFFERS: _NAMED,
    Code.COMPLETED_DIFFERENTLY: _NAMED,
    Code.PREDECESSOR_IMPOSSIBLE: (*_NAMED, "other"),
    Code.CHECKPOINT_TOO_HIGH: (*_NAMED, "other"),
    Code.TWO_ATTEMPTS: (*_NAMED, "first"),
    Code.FILES_LOST: (*_NAMED, "detail"),
    Code.FINAL_TOO_OLD: (*_NAMED, "other"),
    Code.REVERTED: ("region", "number"),
    Code.RECORD_SKIPPED: ("region", "number"),
    Code.SKIPPED_LATE: ("number", "other"),
    Code.EVENTS_MISSING: (*_NAMED, "number", "event"),
    Code.EVENT_MISPLACED: (*_NAMED, "event", "first", "other"),
    Code.PREDECESSOR_MISSING: (*_NAMED, "other"),
    Code.COMPLETION_UNREADABLE: _NAMED,
    Code.FILES_EXCLUDED: ("region", "detail"),
    Code.FILE_NAME_DIFFERS: ("region", "first", "second"),
    Code.LOCATION_NOT_ALLOWED: ("region", "first", "second"),
    Code.LOCATION_AMBIGUOUS: ("region", "first", "detail"),
    Code.PATH_ESCAPES: ("region", "first", "second"),
    Code.WAITS_FOR_REGIONS: ("names",),
    Code.POSITIONS_STATED: ("names",),
    Code.SAVEPOINT_WAITS: ("first", "second"),
    Code.DRAIN_WAITS: ("first", "second"),
    Code.STILL_RUNNING: ("region", "incarnation"),
    Code.WATERMARK_IGNORED: (*_NAMED, "first", "second"),
    Code.WATERMARK_IN_SECONDS: (*_NAMED, "first"),
    Code.RECORD_UNREADABLE: ("number", "detail", "first"),
    Code.LOG_DISCONTINUOUS: ("number", "detail"),
    Code.OTHER_PARTITION: ("number", "other"),
    Code.OTHER_COMMIT_USER: ("first", "second"),
    Code.TABLE_UNFIT: ("detail",),
    Code.TABLE_REPLACED: ("detail",),
    Code.TABLE_AHEAD: ("number", "other"),
    Code.TABLE_CONTRADICTS: ("number", "first", "detail"),
    Code.ABSENCE_UNPROVEN: ("number", "detail"),
    Code.COMMIT_REFUSED: ("number", "names", "detail"),
    Code.RETRYING: ("first", "detail"),
    Code.NOT_APPLICABLE: ("region", "number", "other", "names"),
    Code.STALE_POLICY: ("number", "other"),
    Code.OUT_OF_ORDER: ("number", "other"),
    Code.UNRESOLVED: ("number", "other"),
    Code.NOT_SEALED: _NAMED,
    Code.REGION_STALLED: ("region",),
    Code.NOT_FULL: ("number", "names"),
    Code.TOO_MANY_BEHIND: ("number", "names"),
    Code.OTHER_DIGEST: ("number",),
    Code.CONTRADICTION: ("names",),
    Code.UNKNOWN_TYPE: ("detail",),
    Code.MALFORMED_ATTRIBUTE: ("first", "detail"),
    Code.MISSING_ATTRIBUTE: ("first",),
    Code.MALFORMED_BODY: ("first", "detail"),
    Code.SIGNATURE: ("detail",),
    Code.WRONG_PARTITION: ("number", "other"),
    Code.TOO_MANY_FILES: ("region", "checkpoint", "number", "other"),
    Code.TOO_MANY_BYTES: ("region", "number", "other"),
    Code.OTHER_FORMAT: ("region", "first", "second"),
    Code.BODY_UNREADABLE: ("region", "number", "detail"),
    Code.STATE_RECORD_NEWER: ("number", "first"),
    Code.STATE_RECORD_MALFORMED: ("first", "detail"),
}
"""By code, the arguments that tell one case from another; the core or the codec sets them."""

_SHOWN: Final = {**WHOLE, "names": "n1, n2", "first": "n1", "second": "n2"}

_names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,20}", fullmatch=True)
_counts = st.none() | st.integers(0, 2**63 - 1)
problems = st.builds(
    Problem,
    code=st.sampled_from(Code),
    region=st.none() | _names,
    incarnation=st.none() | _names,
    checkpoint=_counts,
    other=_counts,
    number=_counts,
    event=st.none() | st.text(min_size=1, max_size=64),
    names=st.lists(st.text(max_size=30), max_size=20).map(tuple),
    detail=st.text(max_size=60),
)


def whole(code: Code) -> str:
    """Return the sentence of a code with all arguments."""
    return format_problem(Problem.model_validate({"code": code, **WHOLE}), "flights")


def bare(code: Code) -> str:
    """Return the sentence of a code without any argument."""
    return format_problem(Problem(code=code), "flights")


def test_every_code_has_a_message_of_three_parts() -> None:
    assert {*MESSAGES} == {*Code}
    assert all(isinstance(each, Message) and all(each) for each in MESSAGES.values())
    assert not any(part.endswith((".", ":")) for each in MESSAGES.values() for part in each)


@pytest.mark.parametrize("code", _ARGUMENTS)
def test_the_arguments_of_a_code_are_in_its_sentence(code: Code) -> None:
    text = whole(code)
    assert [name for name in _ARGUMENTS[code] if str(_SHOWN[name]) not in text] == []


@pytest.mark.slow
@given(problems, st.text(max_size=20))
def test_any_arguments_give_sentences(problem: Problem, stream: str) -> None:
    assert format_problem(problem, stream).endswith(".")


def test_placeholders_in_arguments_stay_as_they_are() -> None:
    problem = Problem(code=Code.TABLE_UNFIT, detail="{stream} [{region}]")
    assert "used: {stream} [{region}]. Correct" in format_problem(problem, "flights")


def test_parts_without_their_arguments_are_left_out() -> None:
    assert bare(Code.EVENTS_MISSING).startswith(
        "Checkpoint CHECKPOINT of region REGION is not committed: it is completed, and its events have not "
    )
    assert "(None)" not in bare(Code.NOT_APPLICABLE)


def test_a_dot_at_the_end_of_a_detail_is_not_repeated() -> None:
    assert ".." not in format_problem(Problem(code=Code.TABLE_UNFIT, detail="It has no bucket."), "flights")


def test_long_lists_and_ids_are_short() -> None:
    assert listed(tuple("abcdefghij")) == "a, b, c, d, e, f, g, h and 2 more"
    assert short_id("i1") == "i1"
    assert short_id("3f3fce50-8a21-4f4e-9d5e-1c1f1d6c7b11") == "3f3fce50…"


def test_a_removed_region_of_an_assignment_that_goes_on_comes_back_after_its_end() -> None:
    problem = Problem(code=Code.REGION_REMOVED, region="EWR", names=("JFK",))
    text = format_problem(problem, "flights")
    assert "the stream goes on with JFK" in text
    assert "`sluicegate assignment close --stream flights --wait`" in text
    assert "assignment.after" not in text


def test_a_region_of_an_assignment_that_has_ended_comes_back_with_the_next_one() -> None:
    text = format_problem(Problem(code=Code.REGION_REMOVED, region="EWR", number=4), "flights")
    assert "`assignment` 5, and with the `assignment.after` that `sluicegate status" in text
    assert "assignment close" not in text
    assert "region reset" not in text
