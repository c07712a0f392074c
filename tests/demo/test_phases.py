"""The phase of a kill: read from logs that end anywhere."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from sluicegate.demo.phases import COMMIT_STEPS, READING, STARTING, Step, Trace, parse


def _line(effect: str, state: str) -> bytes:
    said = {"stream": "flights", "state": state, "effect": effect, "event": "effect", "level": "debug"}
    return json.dumps(said).encode() + b"\n"


def _phase(tmp_path: Path, content: bytes) -> str:
    log = tmp_path / "coordinator.log"
    log.write_bytes(content)
    trace = Trace(log)
    trace.advance()
    trace.close()
    return trace.phase


def _done(*effects: str) -> bytes:
    return b"".join(_line(effect, "started") + _line(effect, "finished") for effect in effects)


@pytest.mark.parametrize("effect", COMMIT_STEPS)
def test_a_step_that_began_and_did_not_end_is_the_phase(tmp_path: Path, effect: str) -> None:
    assert _phase(tmp_path, _done("InspectTable") + _line(effect, "started")) == effect


@pytest.mark.parametrize(("effect", "following"), list(pairwise(COMMIT_STEPS)))
def test_after_a_step_of_a_commit_the_next_one_is_named(tmp_path: Path, effect: str, following: str) -> None:
    assert _phase(tmp_path, _done(effect)) == f"between {effect} and {following}"


@pytest.mark.parametrize("effect", ["InspectTable", "FetchEnd", "Append stream.policy", COMMIT_STEPS[-1]])
def test_when_nothing_has_to_follow_it_reads(tmp_path: Path, effect: str) -> None:
    assert _phase(tmp_path, _done(effect)) == READING


def test_of_two_steps_at_once_the_one_that_began_last_counts(tmp_path: Path) -> None:
    both = _line("Announce", "started") + _line("WriteView", "started")
    assert _phase(tmp_path, both) == "WriteView"
    assert _phase(tmp_path, both + _line("WriteView", "finished")) == "Announce"
    assert _phase(tmp_path, both + _line("Announce", "finished")) == "WriteView"


def test_a_step_that_is_repeated_is_under_way_until_its_last_end(tmp_path: Path) -> None:
    again = _line("Announce", "started") * 2 + _line("Announce", "finished")
    assert _phase(tmp_path, again) == "Announce"


def test_before_the_first_step_it_starts(tmp_path: Path) -> None:
    assert _phase(tmp_path, b'{"event": "listening"}\n') == STARTING
    assert Trace(tmp_path / "not there yet.log").advance() == []


def test_a_line_that_was_cut_off_says_nothing(tmp_path: Path) -> None:
    cut = _line("Publish", "started")[:-5]
    assert _phase(tmp_path, _done("Ask") + cut) == "between Ask and Publish"


def test_lines_arrive_in_pieces(tmp_path: Path) -> None:
    log = tmp_path / "coordinator.log"
    line = _line("Ask", "started")
    log.write_bytes(line[:10])
    trace = Trace(log)
    assert trace.advance() == []
    with log.open("ab") as more:
        more.write(line[10:] + _line("Ask", "finished"))
    assert trace.advance() == [Step("Ask", True), Step("Ask", False)]
    assert trace.advance() == []
    trace.close()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"plain text about an effect",
        b'{"event": "effect failed, will be tried again", "effect": "Ask"}',
        b'{"event": "effect", "effect": "Ask", "state": "odd"}',
        b'{"event": "effect", "effect": 7, "state": "started"}',
        b'["effect"]',
    ],
)
def test_other_lines_are_passed_over(line: bytes) -> None:
    assert parse(line) is None
