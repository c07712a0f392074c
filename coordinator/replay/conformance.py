"""Conformance of a foreign writer: events of a region in the log, held against docs/writers/contract.md.

It is a pure function of what is in the topics. A finding is a violation of the contract, or something that a
whole trial must contain and that was not seen.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, NamedTuple

from sluicegate.events.codec import read_files, read_record
from sluicegate.events.dead_letters import Letter
from sluicegate.events.envelope import EventType, LogRecord, RawHeader, partition_of
from sluicegate.events.files import attempt_of, location_problem, names_problem
from sluicegate.events.models import (
    Body,
    CheckpointCompleted,
    FilesWritten,
    RegionClosed,
    RegionHeartbeat,
    RegionRegistered,
)
from sluicegate.events.notifications import Committed, Notification, RegistrationAnswered, read_notification
from sluicegate.events.problems import Code, Problem

_MISSED: Final = 3
"""Heartbeats in a row that a driver may miss."""
_GRACE: Final = 1_000
"""Milliseconds of a heartbeat's delay that count for nothing."""
_INTERVAL: Final = 5_000
"""Milliseconds between the heartbeats of a run that has not sent any yet, as the contract has it."""
_NOW: Final = 2**62
"""Time of something that is still missing."""
_OF_COORDINATORS: Final = frozenset(
    {
        *(EventType.STREAM_POLICY, EventType.STREAM_COMMAND, EventType.CUT_DECIDED),
        *(EventType.CUT_COMMITTED, EventType.CUT_REVERTED, EventType.CUT_ABANDONED),
    }
)


class Raw(NamedTuple):
    """A message as it is in its topic."""

    partition: int
    offset: int
    time: int
    """Append time in milliseconds since the Unix epoch."""
    key: bytes | None
    headers: Sequence[RawHeader]
    value: bytes | None


class Violation(NamedTuple):
    """Something that the contract forbids, or that is missing in the trial."""

    rule: str
    detail: str
    time: int
    """Append time of the event that shows it."""


class _Late(NamedTuple):
    """The letter of an event whose incarnation was not the live one."""

    violation: Violation
    offset: int
    incarnation: str


@dataclass
class _Event:
    """A readable event of the region."""

    raw: Raw
    record: LogRecord
    body: Body | None


@dataclass
class Trial:
    """Everything that the topics have of one region."""

    stream: str
    region: str
    partitions: int
    """Of the events topic."""
    events: list[_Event] = field(default_factory=list)
    answers: dict[str, tuple[int, RegistrationAnswered]] = field(default_factory=dict)
    """By registration: the time of the answer, and the answer."""
    commits: list[Committed] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    letters: list["_Late"] = field(default_factory=list)
    """Letters of events whose incarnation was not the live one."""

    def read(self, raw: Raw, *, readable: bool = True) -> None:
        """Take a message of the events topic; those of other streams and regions are left out.

        `readable`: False if the name of a header is not UTF-8, so that no reader takes the message.
        """
        named = {name: value for name, value in raw.headers if name in ("ce_stream", "ce_region")}
        ours = f"{self.stream}/{self.region}"
        keyed = raw.key is not None and f"{raw.key.decode(errors='replace')}/".startswith(f"{ours}/")
        if (named.get("ce_stream"), named.get("ce_region")) != (self.stream.encode(), self.region.encode()):
            if keyed:
                self._add("envelope", raw, f"its key is of {ours}, and its headers are not")
            return
        if not readable:
            self._add("envelope", raw, "the name of a header is not UTF-8, so no reader takes the event")
            return
        reading = read_record(raw.offset, raw.time, raw.headers, raw.value)
        if reading.flaw is not None:
            self._add("envelope", raw, _flaw_text(reading.flaw.problem))
        if reading.record is None or reading.record.envelope.type in _OF_COORDINATORS:
            return
        envelope = reading.record.envelope
        home = partition_of(self.stream, self.partitions)
        if raw.partition != home:
            self._add("partition", raw, f"the stream's partition is {home} of {self.partitions}")
        body = reading.record.body
        if envelope.writer:
            files = self._files(raw, reading.record)
            body = files if envelope.type is EventType.FILES_WRITTEN else body
        self.events.append(_Event(raw, reading.record, body))

    def _files(self, raw: Raw, record: LogRecord) -> FilesWritten | None:
        body = read_files(record.envelope, raw.value)
        if isinstance(body, Problem):
            rule = "path" if any(name.endswith(".path") for name in body.names) else "body"
            self._add(rule, raw, _flaw_text(body))
            return None
        if (wrong := names_problem(attempt_of(record.envelope), body)) is not None:
            path, digest, *_ = wrong.names
            self._add("file-name", raw, f"{path} lacks the digest {digest} of its attempt")
        if (wrong := location_problem(body, [body.location])) is not None:
            self._add("path", raw, f"{wrong.code}: {', '.join(wrong.names)}")
        return body

    def read_feed(self, raw: Raw) -> None:
        """Take a message of the commits topic."""
        found = read_notification(raw.headers, raw.value)
        if not isinstance(found, Notification) or found.stream != self.stream:
            return
        if isinstance(found.body, RegistrationAnswered):
            self.answers.setdefault(found.body.registration, (raw.time, found.body))
        elif isinstance(found.body, Committed):
            self.commits.append(found.body)

    def read_letter(self, letter: Letter) -> None:
        """Take a dead letter."""
        named = {name: (value or b"").decode(errors="replace") for name, value in letter.headers}
        if (named.get("ce_stream"), named.get("ce_region")) != (self.stream, self.region):
            return
        where = f"partition {letter.place.partition}, offset {letter.place.offset}"
        found = Violation("dead-letter", f"{where}: {letter.code}. {letter.reason}", letter.place.time)
        if letter.code == Code.NOT_LIVE:
            self.letters.append(_Late(found, letter.place.offset, named.get("ce_incarnation", "")))
        else:
            self.violations.append(found)

    def _of_letters(self) -> Iterator[Violation]:
        """Yield the letters of events that no replacement of their driver explains."""
        registered = {
            event.record.envelope.id: event.raw.offset for event in self._all(EventType.REGION_REGISTERED)
        }
        begun = [(registered[run], life) for run, (_, life) in self._accepted().items()]
        for letter in self.letters:
            # A driver that was replaced may still complete, until it finds out.
            lived = any(at < letter.offset for at, life in begun if life == letter.incarnation)
            replaced = any(at < letter.offset for at, life in begun if life != letter.incarnation)
            if not (lived and replaced):
                yield letter.violation

    def _add(self, rule: str, raw: Raw, detail: str) -> None:
        where = f"partition {raw.partition}, offset {raw.offset}"
        self.violations.append(Violation(rule, f"{where}: {detail}", raw.time))

    # --- what the events say together -------------------------------------------------------------

    def finish(self, since: int = 0) -> list[Violation]:
        """Return the violations since a time, in the order of the contract, and what a whole trial lacks."""
        found = (
            *self.violations,
            *self._of_letters(),
            *self._of_registrations(),
            *self._of_tables(),
            *self._of_completions(),
            *self._of_heartbeats(),
            *self._of_beginnings(),
        )
        judged = replace(self, events=[each for each in self.events if each.raw.time >= since])
        return [*(each for each in found if each.time >= since), *judged._missing()]

    def older(self, since: int) -> int:
        """Return the number of violations before a time."""
        return sum(each.time < since for each in self.finish())

    def newest(self) -> int:
        """Return the time of the first event of the newest incarnation that was accepted; 0 if none was."""
        newest = next(reversed([life for _, life in self._accepted().values()]), None)
        # A writer that does not await its answer publishes before its registration.
        own = (each.raw.time for each in self.events if each.record.envelope.incarnation == newest)
        return min(own, default=0)

    def _all(self, kind: EventType) -> Iterator[_Event]:
        """Yield the first copy of each event of a type, in the order of the log."""
        seen = set[str]()
        for event in sorted(self.events, key=lambda each: (each.raw.partition, each.raw.offset)):
            envelope = event.record.envelope
            if envelope.type is kind and envelope.id not in seen:
                seen.add(envelope.id)
                yield event

    def _accepted(self) -> dict[str, tuple[int, str]]:
        """Return, by accepted registration, the time of its answer and the incarnation."""
        found = {}
        for event in self._all(EventType.REGION_REGISTERED):
            answer = self.answers.get(event.record.envelope.id)
            probe = isinstance(event.body, RegionRegistered) and event.body.probe
            if answer is not None and answer[1].accepted and not probe:
                found[event.record.envelope.id] = answer[0], event.record.envelope.incarnation
        return found

    def _of_registrations(self) -> Iterator[Violation]:
        since: dict[str, int] = {}
        for time, life in self._accepted().values():
            since[life] = min(time, since.get(life, time))
        late = set[str]()
        for kind in (EventType.FILES_WRITTEN, EventType.CHECKPOINT_COMPLETED):
            for event in self._all(kind):
                life = event.record.envelope.incarnation
                if life not in late and event.record.time < since.get(life, event.record.time + 1):
                    late.add(life)
                    yield Violation(
                        "answer",
                        f"offset {event.raw.offset}: incarnation {life} publishes {kind} before its "
                        "registration is accepted. Await the answer first",
                        event.raw.time,
                    )

    def _of_tables(self) -> Iterator[Violation]:
        """Yield the first file event for each table that no registration of its incarnation names."""
        named: dict[str, set[str]] = defaultdict(lambda: {""})
        for event in self._all(EventType.REGION_REGISTERED):
            if isinstance(event.body, RegionRegistered):
                named[event.record.envelope.incarnation] |= {*event.body.tables}
        for kind in (EventType.FILES_WRITTEN, EventType.CHECKPOINT_COMPLETED):
            for event in self._all(kind):
                of = event.record.envelope
                if of.table not in named[of.incarnation]:
                    named[of.incarnation].add(of.table)
                    yield Violation(
                        "table",
                        f"offset {event.raw.offset}: the registration of incarnation {of.incarnation} does "
                        f"not name the table {of.table} in `tables`, so a table that the stream lacks is "
                        "found too late",
                        event.raw.time,
                    )

    def _of_completions(self) -> Iterator[Violation]:
        files: dict[tuple[str, int], dict[str, tuple[str, str]]] = defaultdict(dict)
        for kind in (EventType.FILES_WRITTEN, EventType.CHECKPOINT_COMPLETED):
            for event in self._all(kind):
                of = event.record.envelope
                if of.writer:
                    files[of.incarnation, of.checkpoint][of.id] = of.writer, of.attempt
        digests: dict[tuple[str, int], str] = {}
        for event in self._all(EventType.CHECKPOINT_COMPLETED):
            of, body = event.record.envelope, event.body
            if not isinstance(body, CheckpointCompleted):
                continue
            place = f"offset {event.raw.offset}: checkpoint {of.checkpoint}"
            known = files[of.incarnation, of.checkpoint]
            if unknown := [name for name in body.events if name not in known]:
                yield Violation(
                    "unknown-events", f"{place} names {unknown}, which the log lacks", event.raw.time
                )
            if len({known[name] for name in body.events if name in known}) > len(
                {known[name][0] for name in body.events if name in known}
            ):
                yield Violation("two-attempts", f"{place} names two attempts of one writer", event.raw.time)
            before = digests.setdefault((of.incarnation, of.checkpoint), body.source_digest)
            if before != body.source_digest:
                again = f"{place} is completed again with another source digest"
                yield Violation("source-digest", again, event.raw.time)

    def _of_heartbeats(self) -> Iterator[Violation]:
        accepted = self._accepted()
        beats: dict[str, list[_Event]] = defaultdict(list)
        for kind in (EventType.REGION_HEARTBEAT, EventType.REGION_CLOSED):
            for event in self._all(kind):
                body = event.body
                if isinstance(body, RegionHeartbeat) and body.silent:
                    continue
                if not isinstance(body, RegionHeartbeat | RegionClosed):
                    continue
                if body.run not in accepted:
                    unknown = f"offset {event.raw.offset}: {body.run} is no accepted registration"
                    yield Violation("run", unknown, event.raw.time)
                elif isinstance(body, RegionHeartbeat):
                    beats[body.run].append(event)
        usual = (
            max(
                (
                    each.body.interval or 0
                    for run in beats.values()
                    for each in run
                    if isinstance(each.body, RegionHeartbeat)
                ),
                default=0,
            )
            or _INTERVAL
        )
        for run, (begin, incarnation) in accepted.items():
            if run in self._resting():
                continue
            yield from _gaps(run, begin, beats[run], self._end_of(begin, incarnation), usual)

    def _resting(self) -> set[str]:
        """Return the registrations of regions that rest, which send no heartbeats."""
        return {
            event.record.envelope.id
            for event in self._all(EventType.REGION_REGISTERED)
            if isinstance(event.body, RegionRegistered) and event.body.rests
        }

    def _of_beginnings(self) -> Iterator[Violation]:
        """Yield the checkpoints that were completed after their driver had said idle."""
        accepted, resting, done = self._accepted(), self._resting(), set[tuple[str, int]]()
        run, life, idle, begun = "", "", False, -1
        for event in sorted(self.events, key=lambda each: each.raw.offset):
            body, of = event.body, event.record.envelope
            if isinstance(body, RegionRegistered) and of.id in accepted:
                run, life, idle, begun = of.id, of.incarnation, False, -1
            elif isinstance(body, RegionHeartbeat) and body.run == run:
                if body.begins is not None:
                    idle, begun = False, max(begun, body.begins)
                elif body.idle:
                    idle = idle or (-1 if body.after is None else body.after) >= begun
            elif isinstance(body, CheckpointCompleted) and (life, of.checkpoint) not in done:
                if idle and of.incarnation == life and run not in resting:
                    yield Violation(
                        "beginning",
                        f"offset {event.raw.offset}: checkpoint {of.checkpoint} is completed, and the driver "
                        "had said idle before. Publish a heartbeat with its number in `begins`, and await "
                        "the acknowledgement before a writer gets its first row",
                        event.raw.time,
                    )
                done.add((of.incarnation, of.checkpoint))
                idle, begun = False, max(begun, of.checkpoint)

    def _end_of(self, begin: int, incarnation: str) -> int:
        """Return the time until which a run had to send heartbeats: its last event, or its successor."""
        own = [each.record.time for each in self.events if each.record.envelope.incarnation == incarnation]
        following = [time for time, _ in self._accepted().values() if time > begin]
        return min([max(own), *following])

    def _missing(self) -> Iterator[Violation]:
        if not self._accepted():
            yield _lacking("missing", "no registration was accepted")
        if not any(each.record.envelope.writer for each in self.events):
            yield _lacking("missing", f"no {EventType.FILES_WRITTEN} and no completion with files is there")
        accepted = self._accepted().keys()
        resting = bool(accepted) and accepted <= self._resting()
        for kind in (EventType.CHECKPOINT_COMPLETED, EventType.REGION_HEARTBEAT):
            # A region that rests sends no heartbeats.
            if not any(self._all(kind)) and not (resting and kind is EventType.REGION_HEARTBEAT):
                yield _lacking("missing", f"no {kind} is there")
        completed = {
            (each.record.envelope.incarnation, each.record.envelope.checkpoint)
            for each in self._all(EventType.CHECKPOINT_COMPLETED)
        }
        cuts = [each.cut[self.region] for each in self.commits if self.region in each.cut]
        done = {(each.incarnation, each.checkpoint) for each in cuts}
        lives = {life: max(number for other, number in done if other == life) for life, _ in done}
        # What a replaced incarnation has completed after its last commit does not count.
        newest = next(reversed([life for _, life in self._accepted().values()]), None)
        late = sorted(each for each in completed if each[0] == newest and each[1] > lives.get(newest, -1))
        if not done:
            yield _lacking("no-commit", "no commit has a checkpoint of the region")
        elif late:
            yield _lacking("no-commit", f"no commit has the checkpoints {[number for _, number in late]}")


def _lacking(rule: str, detail: str) -> Violation:
    """Return a part of a whole trial that was not seen."""
    return Violation(rule, detail, _NOW)


def _gaps(run: str, begin: int, events: Sequence[_Event], end: int, usual: int) -> Iterator[Violation]:
    """Yield the first time in which a driver should have sent more heartbeats.

    `usual` is the interval of a run that states none: a short one may end before its first heartbeat is due.
    """
    bodies = [(event.record.time, event.body) for event in events]
    intervals = [body.interval for _, body in bodies if isinstance(body, RegionHeartbeat) and body.interval]
    last = bodies[-1][1] if bodies else None
    ended = isinstance(last, RegionHeartbeat) and last.interval is None
    times = [begin, *(time for time, _ in bodies), *([] if ended else [end])]
    interval = max(intervals, default=usual)
    for before, after in pairwise(times):
        if after - before > _MISSED * interval + _GRACE:
            stated = f"its interval is {interval} ms" if intervals else "it never states their interval"
            silent = f"the run {run} sent none for {after - before} ms; {stated}"
            yield Violation("heartbeats", silent, before)
            return


def _flaw_text(problem: Problem) -> str:
    return " ".join(filter(None, (str(problem.code), ", ".join(problem.names), problem.detail)))


def counts(trial: Trial) -> Mapping[str, int]:
    """Return how many events of each type were seen."""
    found: dict[str, int] = defaultdict(int)
    for event in trial.events:
        found[str(event.record.envelope.type)] += 1
    return found
