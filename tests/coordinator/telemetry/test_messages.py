"""Every problem and every cause has a sentence with its arguments; `sentences.txt` shows them all.

With `--rewrite-golden`, the test writes the file. Read the diff.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.coordinator.observe.messages import (
    CAUSES,
    MESSAGES,
    STREAM_MESSAGES,
    Message,
    format_cause,
    format_problem,
    listed,
    short_id,
)
from sluicegate.events.problems import STREAM_STALLS, Cause, CauseCode, Code, Problem
from tests.events.strategies import bodies_of

SENTENCES: Final = Path(__file__).parent / "sentences.txt"
OF_PROBLEMS: Final = {
    "region": "EWR",
    "incarnation": "i1",
    "checkpoint": 71,
    "other": 62,
    "number": 53,
    "event": "e-44",
    "names": ("n1", "n2"),
    "detail": "some detail",
}
OF_CAUSES: Final = {
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


def sentences() -> Iterator[str]:
    """Yield the sentence of each code with all arguments, and without any."""
    for code in sorted(Code):
        for about in (OF_PROBLEMS, {}):
            yield f"{code}: {format_problem(Problem.model_validate({'code': code, **about}), 'flights')}"
    for cause in sorted(CauseCode):
        for about in (OF_CAUSES, {}):
            yield f"{cause}: {format_cause(Cause.model_validate({'code': cause, **about}), 'some detail')}"


def test_sentences_are_those_of_the_file(rewrite: bool) -> None:
    if rewrite:
        SENTENCES.write_text("\n".join([*sentences(), ""]), encoding="utf-8")
    assert [*sentences()] == SENTENCES.read_text(encoding="utf-8").splitlines()


def test_every_code_has_a_message_of_three_parts() -> None:
    assert {*MESSAGES} == {*Code}
    assert all(isinstance(each, Message) and all(each) for each in MESSAGES.values())
    assert not any(part.endswith((".", ":")) for each in MESSAGES.values() for part in each)
    assert {*CAUSES} == {*CauseCode}
    assert not any(text.endswith((".", ":")) or text[0].isupper() for text in CAUSES.values())


@pytest.mark.slow
@given(bodies_of(Problem))
def test_any_arguments_give_sentences_and_a_cause_changes_no_identity(problem: Problem) -> None:
    assert format_problem(problem, "flights").endswith(".")
    assert problem.identity == problem.model_copy(update={"cause": None, "detail": ""}).identity


@pytest.mark.slow
@given(st.builds(Cause, code=st.sampled_from(CauseCode), names=st.lists(st.text(max_size=9)).map(tuple)))
def test_placeholders_in_arguments_stay_as_they_are(cause: Cause) -> None:
    caused = cause.model_copy(update={"code": CauseCode.PATH_REPEATED, "names": ("{number} [x]",)})
    assert format_cause(caused) == "the path {number} [x] is listed twice"
    assert format_cause(cause)
    problem = Problem(code=Code.TABLE_UNFIT, detail="{stream} [{region}].")
    assert "used: {stream} [{region}]. Correct" in format_problem(problem, "flights")


def test_long_lists_and_ids_are_short() -> None:
    assert listed(tuple("abcdefghij")) == "a, b, c, d, e, f, g, h and 2 more"
    assert short_id("i1") == "i1"
    assert short_id("3f3fce50-8a21-4f4e-9d5e-1c1f1d6c7b11") == "3f3fce50…"


@pytest.mark.parametrize(
    ("about", "said", "unsaid"),
    [
        ({"names": ("JFK",)}, "goes on with JFK.*`sluicegate assignment close", "assignment.after"),
        ({"number": 4}, "with assignment 5, .* With Spark, .* `assignment.after`", "assignment close"),
    ],
    ids=["the assignment goes on", "the assignment has ended"],
)
def test_a_removed_region_comes_back_with_the_next_assignment(
    about: dict[str, object], said: str, unsaid: str
) -> None:
    problem = Problem.model_validate({"code": Code.REGION_REMOVED, "region": "EWR", **about})
    text = format_problem(problem, "flights")
    assert re.search(said, text)
    assert unsaid not in text


def test_each_condition_of_a_stream_is_a_stall_or_stops_nothing() -> None:
    others = {Code.PAUSED, Code.SAVEPOINT_WAITS, Code.DRAIN_WAITS, Code.RETENTION, Code.EVENTS_LIMITED}
    # It is being ended, and the regions work on.
    others |= {Code.TABLES_APART}
    assert {*STREAM_MESSAGES} == STREAM_STALLS | others
    assert not STREAM_STALLS & others


def test_logs_show_the_code_with_the_arguments_that_are_set() -> None:
    assert (
        str(Cause(code=CauseCode.EVENT_ABSENT, number=0, partition=3)) == "event-absent number=0 partition=3"
    )


def test_messages_of_problems_with_a_cause_show_it() -> None:
    caused = {
        *(Code.ABSENCE_UNPROVEN, Code.TABLE_CONTRADICTS, Code.COMMIT_REFUSED, Code.RETRYING, Code.RETENTION),
        *(Code.LOG_DISCONTINUOUS, Code.RECORD_UNREADABLE, Code.BODY_UNREADABLE, Code.MALFORMED_BODY),
        *(Code.SIGNATURE, Code.LOCATION_AMBIGUOUS),
    }
    assert caused <= {code for code, message in MESSAGES.items() if "{detail}" in "".join(message)}
