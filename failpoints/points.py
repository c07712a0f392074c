"""Failpoints: actions of a test at named places between two effects.

Failpoints are off by default. They are a package of their own because every process imports it: coordinator,
adapters and writer hooks.

A specification is a list of `name=action`, separated by `;`: `publish.before=kill@2;ask.after=delay:50`. The
name `*` stands for all places. An argument follows its action after a colon. Two optional suffixes limit an
action, in this order:

- `@n`: only the n-th time that this process reaches the place. For `*`, hits of all places count together.
- `?file`: only if this file exists and this process removes it. A test harness creates the file to choose the
  time; of several processes, one acts.

| action | effect |
|---|---|
| `note` | only recorded in the log of hits |
| `kill` | SIGKILL to the own process |
| `stop` | SIGSTOP to the own process, until another process sends SIGCONT |
| `hang:file` | waits until the file exists |
| `delay:ms` | waits for this number of milliseconds |
| `fail` | raises InjectedFailure: at `.before` the effect failed, at `.after` its outcome is unknown |
"""

import asyncio
import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sluicegate.failpoints.names import Failpoint

VARIABLE: Final = "SLUICEGATE_FAILPOINTS"
LOG_VARIABLE: Final = "SLUICEGATE_FAILPOINTS_LOG"
EVERYWHERE: Final = "*"

_POLL: Final = 0.01
_ACTIONS: Final = {"note": False, "kill": False, "stop": False, "hang": True, "delay": True, "fail": False}
"""True for an action that needs an argument."""

_log = logging.getLogger(__name__)


class BadFailpoints(ValueError):
    """The specification has an unknown name or action, or a bad argument; the text names the problem."""


class InjectedFailure(OSError):
    """A failure raised by a failpoint."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Action at one place, or at all places (`point` None)."""

    point: Failpoint | None
    action: str
    argument: str = ""
    turn: int | None = None
    """Act only the n-th time; None: every time."""
    ticket: str = ""
    """Act only if this process could remove this file; empty: always."""


def parse(text: str) -> tuple[Rule, ...]:
    """Parse a specification. Raises BadFailpoints."""
    return tuple(_rule(part.strip()) for part in text.split(";") if part.strip())


def _rule(text: str) -> Rule:
    name, equals, rest = text.partition("=")
    if not equals:
        raise BadFailpoints(f"{text!r} is no `name=action`")
    rest, _, ticket = rest.partition("?")
    rest, at, turn = rest.rpartition("@") if "@" in rest else (rest, "", "")
    if at and not (turn.isdigit() and int(turn) > 0):
        raise BadFailpoints(f"{text!r}: a number from 1 on must follow `@`")
    action, _, argument = rest.partition(":")
    if action not in _ACTIONS:
        raise BadFailpoints(f"{text!r}: there is no action {action!r}; there are {', '.join(_ACTIONS)}")
    if _ACTIONS[action] != bool(argument):
        raise BadFailpoints(f"{text!r}: {action} needs {'an' if _ACTIONS[action] else 'no'} argument")
    if action == "delay" and not argument.isdigit():
        raise BadFailpoints(f"{text!r}: {argument!r} is no number of milliseconds")
    return Rule(_point(name), action, argument, int(turn) if at else None, ticket)


def _point(name: str) -> Failpoint | None:
    if name == EVERYWHERE:
        return None
    try:
        return Failpoint(name)
    except ValueError:
        raise BadFailpoints(f"there is no failpoint {name!r}; there are {', '.join(Failpoint)}") from None


class _Armed:
    """Rules of this process, with the number of hits of each place."""

    def __init__(self, rules: Sequence[Rule], log_file: str) -> None:
        self._rules = rules
        self._log_file = log_file
        self._hits: Counter[Failpoint | None] = Counter()
        self._lock = threading.Lock()

    def act(self, point: Failpoint) -> Iterator[float]:
        """Carry out the rules that are due, and yield each pause in seconds.

        Pauses are yielded because blocking code and coroutines sleep differently. Raises InjectedFailure.
        """
        for rule in self._due(point):
            match rule.action:
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                    # The signal may take effect with a delay; no further effect may happen in the meantime.
                    while True:
                        time.sleep(1)
                case "stop":
                    # To this thread: if another one took the signal, this one would go on for a moment.
                    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
                case "delay":
                    yield int(rule.argument) / 1000
                case "hang":
                    while not os.path.exists(rule.argument):
                        yield _POLL
                case "fail":
                    raise InjectedFailure(f"the failpoint {point} was told to fail")

    def _due(self, point: Failpoint) -> list[Rule]:
        with self._lock:
            self._hits[point] += 1
            self._hits[None] += 1
            due = [rule for rule in self._rules if rule.point in (point, None) and self._is_due(rule)]
            if self._log_file:
                what = ",".join(rule.action for rule in due) or "-"
                self._note(f"{os.getpid()} {point} {self._hits[point]} {what}\n")
        return due

    def _is_due(self, rule: Rule) -> bool:
        if rule.turn is not None and rule.turn != self._hits[rule.point]:
            return False
        if not rule.ticket:
            return True
        with suppress(FileNotFoundError):
            # Of several processes, only one succeeds in removing the file.
            os.unlink(rule.ticket)
            return True
        return False

    def _note(self, line: str) -> None:
        # One write to a file in append mode: the line stays whole with several writers, and survives a kill.
        descriptor = os.open(self._log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


_armed: _Armed | None = None


def arm(text: str, log_file: str = "") -> None:
    """Put failpoints into force in this process; an empty text disarms all. Raises BadFailpoints.

    Each hit appends a line to `log_file`: process id, name, number of hits so far, actions.
    """
    global _armed  # noqa: PLW0603
    rules = parse(text)
    _armed = _Armed(rules, log_file) if rules else None
    if rules:
        _log.warning("FAILPOINTS ARE ON, this process will hurt itself on purpose: %s", text)


def arm_from(environment: Mapping[str, str]) -> None:
    """Arm once in a process that reads no settings, such as a Spark worker. Raises BadFailpoints."""
    text = environment.get(VARIABLE, "")
    if text and _armed is None:
        arm(text, environment.get(LOG_VARIABLE, ""))


def hit(point: Failpoint) -> None:
    """Pass a place in blocking code. Raises InjectedFailure if a rule requires it."""
    if _armed is not None:
        for pause in _armed.act(point):
            time.sleep(pause)


async def reach(point: Failpoint) -> None:
    """Pass a place in a coroutine; a pause delays only this task. Raises InjectedFailure if a rule requires
    it."""
    if _armed is not None:
        for pause in _armed.act(point):
            await asyncio.sleep(pause)


def read_hits(log_file: str) -> Counter[str]:
    """Return the number of hits of each place, from the log of hits."""
    return Counter(name for _, name, _, _ in _lines(log_file))


def read_actions(log_file: str, action: str) -> Counter[str]:
    """Return the number of times that an action was carried out at each place, from the log of hits."""
    return Counter(name for _, name, _, done in _lines(log_file) if action in done.split(","))


def _lines(log_file: str) -> Iterator[Sequence[str]]:
    try:
        with open(log_file, encoding="utf-8") as lines:
            for line in lines:
                yield line.split()
    except FileNotFoundError:
        return
