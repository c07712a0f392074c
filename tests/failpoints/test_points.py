"""Failpoints: what a specification says, and what happens at a place."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.failpoints import points
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import (
    BadFailpoints,
    InjectedFailure,
    Rule,
    arm,
    hit,
    parse,
    reach,
    read_actions,
    read_hits,
)
from tests.integration.waiting import BACKSTOP, finished, until

HERE = Failpoint.PUBLISH_BEFORE
THERE = Failpoint.ASK_AFTER


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm("")


def test_a_specification_is_read_whole() -> None:
    rules = parse("publish.before=kill@2; ask.after=delay:50?/t/ticket;*=note;announce.after=hang:/go@1")
    assert rules == (
        Rule(HERE, "kill", turn=2),
        Rule(THERE, "delay", "50", ticket="/t/ticket"),
        Rule(None, "note"),
        Rule(Failpoint.ANNOUNCE_AFTER, "hang", "/go", turn=1),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("publish.befor=kill", "no failpoint 'publish.befor'"),
        ("publish.before=explode", "no action 'explode'"),
        ("publish.before", "no `name=action`"),
        ("publish.before=hang", "hang needs an argument"),
        ("publish.before=kill:9", "kill needs no argument"),
        ("publish.before=kill@0", "from 1 on"),
        ("publish.before=delay:soon", "no number of milliseconds"),
    ],
)
def test_what_is_unknown_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadFailpoints, match=says):
        parse(text)


def test_nothing_happens_when_none_is_named() -> None:
    for point in Failpoint:
        hit(point)


def test_the_turn_counts_each_place_alone_and_every_hit_is_noted(tmp_path: Path) -> None:
    log = str(tmp_path / "hits")
    arm(f"{HERE}=fail@2", log)
    hit(HERE)
    hit(THERE)
    with pytest.raises(InjectedFailure):
        hit(HERE)
    hit(HERE)
    assert read_hits(log) == {HERE: 3, THERE: 1}
    assert read_actions(log, "fail") == {HERE: 1}


def test_all_places_are_counted_together() -> None:
    arm("*=fail@2")
    hit(HERE)
    with pytest.raises(InjectedFailure):
        hit(THERE)


def test_a_ticket_is_taken_once(tmp_path: Path) -> None:
    ticket = tmp_path / "ticket"
    arm(f"{HERE}=fail?{ticket}")
    hit(HERE)
    ticket.touch()
    with pytest.raises(InjectedFailure):
        hit(HERE)
    assert not ticket.exists()
    hit(HERE)


async def test_only_the_own_coroutine_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    looked = 0

    def look(_: str) -> bool:
        nonlocal looked
        looked += 1
        return go.is_file()

    monkeypatch.setattr(os.path, "exists", look)
    arm(f"{HERE}=hang:{go}")
    hanging = asyncio.create_task(reach(HERE))
    # It has looked for the file, and looked again: it waits, and does not hold this coroutine up.
    await until(lambda: looked >= 3, by=hanging)
    assert not hanging.done()
    go.touch()
    await finished(hanging)


def test_a_delay_lasts() -> None:
    arm(f"{HERE}=delay:30")
    started = time.monotonic()  # time: a lower bound, which a slow machine does not miss
    hit(HERE)
    assert time.monotonic() - started >= 0.03  # time: as above


def test_being_armed_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        arm(f"{HERE}=note")
    assert "FAILPOINTS ARE ON" in caplog.text
    assert str(HERE) in caplog.text


_CHILD = """\
import os
from sluicegate.failpoints.points import arm_from, hit
from sluicegate.failpoints.names import Failpoint
arm_from(os.environ)
hit(Failpoint.PUBLISH_BEFORE)
print("went on", flush=True)
"""


def child(specification: str, log: Path) -> subprocess.Popen[str]:
    """A process without settings that passes one place."""
    variables = {points.VARIABLE: specification, points.LOG_VARIABLE: str(log)}
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.slow
def test_a_process_is_killed_where_it_stands(tmp_path: Path) -> None:
    process = child(f"{HERE}=kill", tmp_path / "hits")
    out, _ = process.communicate(timeout=BACKSTOP)
    assert (process.returncode, out) == (-signal.SIGKILL, "")
    assert read_actions(str(tmp_path / "hits"), "kill") == {HERE: 1}


@pytest.mark.slow
def test_a_process_is_frozen_until_it_is_told_to_go_on(tmp_path: Path) -> None:
    process = child(f"{HERE}=stop", tmp_path / "hits")
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=BACKSTOP)
        assert out == "went on\n"
    finally:
        process.kill()
