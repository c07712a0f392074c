"""The orders of a stream's log: the sender of each, as it claims, and the effect by the rules of the log."""

from collections import deque
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Literal

from aiokafka import ConsumerRecord

from sluicegate.coordinator.replay.decisions import LogFold, ReplayRefused, Start, Step
from sluicegate.coordinator.replay.log import Print, StreamLog, open_log, stream_records
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.codec import read_record
from sluicegate.events.envelope import EventType, wire_type
from sluicegate.events.models import CutReverted, StreamCommand
from sluicegate.events.orders import Order, has_order, is_note, read_order
from sluicegate.events.problems import Problem
from sluicegate.events.signing import WINDOW_MS, State

Effect = Literal["accepted", "refused", "noted", "unknown"]
"""`noted`: the work of the order is outside of the log. `unknown`: the log before it cannot be read."""
Outcome = Literal["reached", "cancelled", "reverted", "committed"]
"""Later outcome of a savepoint, a drain or a revert; `committed`: the revert came too late."""

_COMMAND: Final = wire_type(EventType.STREAM_COMMAND)
_FAMILIES: Final = frozenset(
    wire_type(each).rpartition(b".v")[0] for each in (EventType.STREAM_COMMAND, EventType.REGION_REGISTERED)
)
"""Types of the records that a command of an operator writes, without their version."""


@dataclass
class Audited:
    """One order in the log."""

    offset: int
    time: int
    """Append time of the broker, in milliseconds since the Unix epoch."""
    order: Order | None
    """The claim of the sender; None if there is none, or a malformed one."""
    malformed: bool
    """True if there is a claim that cannot be read."""
    signature: State
    command: StreamCommand | None
    """None for the registration of a reset region, and for a body that cannot be read. It is there also if
    the signature is refused."""
    region: str = ""
    registers: bool = False
    """True for the registration of a reset region."""
    effect: Effect = "unknown"
    problem: Problem | None = None
    """Reason of a refusal."""
    decision: int | None = None
    """The newest decision when the order took effect; 0: there was none."""
    copy_of: int | None = None
    """Offset of an earlier record with the same id, content and signature. Anybody can append such a copy."""
    outcome: Outcome | None = None
    outcome_decision: int | None = None
    """The newest decision at the outcome."""

    @property
    def is_note(self) -> bool:
        """True if the work of the order is outside of the log."""
        return is_note(self.command)


@dataclass
class Audit:
    """Orders of a stream, the oldest first."""

    orders: deque[Audited]
    older: int = 0
    """Number of orders before these."""
    unknown: str = ""
    """Reason why effects are not known; empty if they are."""


@dataclass
class _Copies:
    """Orders that were read, by their content, to find those that were appended again."""

    seen: dict[tuple[object, ...], int] = field(default_factory=dict)

    def marked(self, audited: Audited | None, record: ConsumerRecord) -> Audited | None:
        """Return the order of a record, with the offset of the earlier one if it is a copy."""
        if audited is not None:
            # A signature covers these. Brokers and mirrors add headers of their own.
            attributes = dict(record.headers).items()
            key = (*sorted(each for each in attributes if each[0].startswith("ce_")), record.value)
            first = self.seen.setdefault(key, record.offset)
            audited.copy_of = first if first != record.offset else None
        return audited


@dataclass
class _Waiting:
    """Orders whose outcome comes later."""

    savepoints: dict[str, Audited] = field(default_factory=dict)
    revert: Audited | None = None

    def given(self, audited: Audited) -> None:
        """Note an accepted order."""
        match audited.command:
            case StreamCommand(command="savepoint" | "drain", name=str(name)):
                self.savepoints[name] = audited
            case StreamCommand(command="cancel", name=str(name)) if name in self.savepoints:
                self.savepoints.pop(name).outcome = "cancelled"
            case StreamCommand(command="revert"):
                self.revert = audited

    def passed(self, step: Step, decided: int) -> None:
        """Note the outcomes that a record brings."""
        for savepoint in step.applied.savepoints:
            if (found := self.savepoints.pop(savepoint.name, None)) is not None:
                found.outcome, found.outcome_decision = "reached", decided
        if step.applied.resolved is not None and self.revert is not None:
            is_reverted = isinstance(step.record.body, CutReverted)
            self.revert.outcome = "reverted" if is_reverted else "committed"
            self.revert.outcome_decision, self.revert = step.applied.resolved.id, None


async def read_orders(settings: Settings, stream: str, most: int, since: int, show: Print) -> Audit:
    """Return up to `most` of the newest orders since a time in milliseconds since the Unix epoch.

    Orders that the log does not have any more are lost. An order whose log cannot be folded has an unknown
    effect. Raises ReplayRefused if there is no such topic, KafkaError, TimeoutError.
    """
    audit, waiting, copies = Audit(deque(maxlen=most)), _Waiting(), _Copies()
    async with open_log(settings, stream, show=show) as log:
        end = await log.end()
        first = max(await log.begin(), await log.first_since(since) if since else 0)
        start, audit.unknown = await _start(settings, stream, log, first)
        fold = None if start is None else LogFold(stream, log.partition, start, log.decode)
        # A copy can be in the log that much later than its original, and still count.
        seen_from = await log.first_since(max(0, since - 2 * WINDOW_MS)) if since else first
        position = min(first, seen_from) if start is None else min(first, seen_from, start.begin)
        async with aclosing(log.read(position, end)) as batches:
            async for batch in batches:
                for record in batch:
                    found = copies.marked(_order(log, stream, record), record)
                    if record.offset < first:
                        found = None
                    _judge(fold, record, found, waiting)
                    if found is not None:
                        audit.older += len(audit.orders) == most
                        audit.orders.append(found)
    return audit


async def _start(settings: Settings, stream: str, log: StreamLog, first: int) -> tuple[Start | None, str]:
    """Return the state from which effects are known, or None with the reason. Raises KafkaError."""
    if stream not in settings.streams:
        return None, f"stream {stream} is not in the settings of this command"
    try:
        return await log.start(stream, await stream_records(settings, stream), first), ""
    except ReplayRefused as error:
        return None, str(error)


def _order(log: StreamLog, stream: str, record: ConsumerRecord) -> Audited | None:
    """Return the order in a record; None if it is no order of the stream."""
    headers, value = record.headers, record.value
    claims = has_order(headers)
    kind = dict(headers).get("ce_type") or b""
    # Any client can put a claim beside any event, which is no order for that.
    if kind != _COMMAND and not (claims and kind.rpartition(b".v")[0] in _FAMILIES):
        return None
    read, flaw = log.decode(record.offset, record.timestamp, headers, value)
    named = read.envelope.stream if read is not None else flaw.stream if flaw is not None else None
    if named != stream:
        return None
    order = read_order(headers)
    # What an unsigned order tries is its body, which has no effect.
    tried = read if read is not None else read_record(record.offset, record.timestamp, headers, value).record
    body = tried.body if tried is not None else None
    return Audited(
        record.offset,
        record.timestamp,
        order,
        claims and order is None,
        log.signatures.state(record.timestamp, headers, value),
        body if isinstance(body, StreamCommand) else None,
        tried.envelope.region if tried is not None else "",
        tried is not None and tried.envelope.type is EventType.REGION_REGISTERED,
        "unknown" if flaw is None else "refused",
        None if flaw is None else flaw.problem,
    )


def _judge(fold: LogFold | None, record: ConsumerRecord, found: Audited | None, waiting: _Waiting) -> None:
    """Fold a record, and note its effect."""
    step = None
    if fold is not None:
        step = fold.read(record.offset, record.timestamp, record.headers, record.value)
    if found is not None and found.is_note and found.effect != "refused":
        found.effect = "noted"
    elif found is not None and step is not None and step.fresh and found.effect != "refused":
        found.problem = step.applied.ignored
        found.effect = "accepted" if found.problem is None else "refused"
        found.decision = fold.replica.state.decided if fold is not None else None
        if found.problem is None:
            waiting.given(found)
    if step is not None and fold is not None:
        waiting.passed(step, fold.replica.state.decided)
