"""The state of all streams of the deployment: own ones as of now, those of other coordinators from Redis."""

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.observe import view as reasons
from sluicegate.coordinator.observe.view import (
    Unfinished,
    oldest_sealed,
    pending_bytes,
    silent_regions,
)
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.tasks import in_pieces
from sluicegate.coordinator.web.feed import Feed
from sluicegate.coordinator.web.model import (
    Checkpoints,
    DeadLetter,
    Deployment,
    Outage,
    PendingCheckpoint,
    Reason,
    StreamState,
)
from sluicegate.coordinator.web.outages import (
    KafkaSilence,
    Silence,
    Watched,
    now,
    outage_of_history,
    outage_of_kafka,
    outage_of_redis,
)
from sluicegate.events.problems import Code, Problem
from sluicegate.state_store import ConditionView, ListenerView, StateStore, StateStoreError, StreamView

if TYPE_CHECKING:
    from sluicegate.coordinator.core.machine import StreamMachine
    from sluicegate.coordinator.stream.runner import StreamRunner


# Checkpoints of the streams on the page that are in no decision.

MOST_MISSING: Final = 10
MOST_CHECKPOINTS: Final = 1_000
COUNTED: Final = 10_000
"""Events of a checkpoint whose attempts and bytes are counted: a count takes milliseconds."""


def pending_checkpoints(log: Log) -> tuple[PendingCheckpoint, ...]:
    """Return the checkpoints that no decision includes, by region and number."""
    found = []
    for region, pending in sorted(log.pending.items()):
        sealed = {each.position.checkpoint: each.time for each in pending.sealed}
        for number, each in sorted(pending.checkpoints.items()):
            parts = each.parts.values() if len(each.parts) <= COUNTED else None
            found.append(
                PendingCheckpoint(
                    region=region,
                    incarnation=pending.incarnation,
                    checkpoint=number,
                    named=len(set(each.body.events)) if each.body is not None else None,
                    arrived=len(each.parts),
                    attempts=None if parts is None else len({(part.writer, part.attempt) for part in parts}),
                    files=each.files,
                    rows=each.rows,
                    bytes=None if parts is None else sum(part.bytes for part in parts),
                    first_event=each.first_time,
                    last_event=each.last_time,
                    sealed_at=sealed.get(number),
                    missing=tuple(sorted(each.missing)[:MOST_MISSING]),
                    missing_count=len(each.missing),
                )
            )
    return tuple(found[:MOST_CHECKPOINTS])


# Reasons of the streams on the page: conditions, silent regions, and dead letters that nobody dealt with.

WAITS_FOR_KAFKA: Final = (
    "Stream {stream} waits for Kafka, which does not answer its coordinator. It continues by itself when "
    "Kafka answers. Drivers that reach no Kafka either end after publish.timeout (60 s by default): start "
    "them again then. The top of the page has the address and the way out."
)


def waits_for_kafka(stream: str, away: Silence) -> reasons.Reason:
    """Return the reason of a stream whose coordinator does not reach Kafka."""
    return reasons.Reason("retry", "kafka-away", WAITS_FOR_KAFKA.format(stream=stream), since=away.since)


def open_letters(letters: Iterable[DeadLetter]) -> dict[str, list[DeadLetter]]:
    """Return the letters that nobody has dealt with, by the stream that they name."""
    found: dict[str, list[DeadLetter]] = {}
    for each in letters:
        if each.stream is not None and each.dealt is None:
            found.setdefault(each.stream, []).append(each)
    return found


def _letters(stream: str, letters: Sequence[DeadLetter]) -> Iterator[reasons.Reason]:
    if letters:
        newest = max(letters, key=lambda each: each.offset)
        yield reasons.letters(stream, len(letters), newest.model_dump())


def _left(machine: "StreamMachine", regions: Iterable[str]) -> dict[str, Unfinished]:
    """Return, by region, the newest checkpoint with files and without a completion, if there is one."""
    found = {}
    for name in regions:
        pending = machine.replica.log.pending.get(name)
        left = [each for each in pending.checkpoints.items() if each[1].body is None] if pending else []
        if left:
            number, checkpoint = max(left, key=lambda each: each[0])
            found[name] = Unfinished(number, len(checkpoint.parts))
    return found


def _reads(runner: "StreamRunner") -> bool:
    """True if a coordinator has not read the log of a stream yet, and nothing holds it up."""
    machine = runner.machine
    stalls = any(each.kind == "stall" for each in machine.conditions())
    return not (machine.ready or runner.is_held or stalls)


LOOK: Final = 2.0
"""Seconds between two looks into Redis."""
PIECE: Final = 10
"""Streams between two turns of the event loop. The state of a small one takes about a millisecond."""
_NOT_READ: Final = "Stream {stream} is not shown yet: its state is read as soon as Kafka answers."


class _Made(NamedTuple):
    """A view of an own stream, and what it was made from."""

    applied: int
    conditions: tuple[tuple[str, Problem], ...]
    listeners: Mapping[str, ListenerView]
    view: StreamView
    size: int
    """Bytes of the files that are in no decision."""


class Board:
    """Collects the states for whoever looks. It costs nothing while nobody does."""

    def __init__(
        self,
        settings: Settings,
        own: Callable[[], "Mapping[str, StreamRunner]"],
        feed: Feed,
        kafka: KafkaSilence,
    ) -> None:
        """`own` returns the streams of this coordinator; `kafka` returns why Kafka does not answer it."""
        self.store: StateStore | None = None
        self._settings = settings
        self._own = own
        self._feed = feed
        self._kafka = kafka
        self._redis = Watched()
        self._host = socket.gethostname()
        self._made: dict[str, _Made] = {}
        self._kept: dict[str, StreamView] = {}
        """Own streams as they were when Kafka stopped to answer."""
        self._views: dict[str, StreamView] = {}
        self._unreadable: list[str] = []
        self._letters: Mapping[str, Sequence[DeadLetter]] = {}
        self._looked = -LOOK

    async def look(self) -> None:
        """Read the views of the other coordinators, if the last look was LOOK seconds ago."""
        self._letters = open_letters(self._feed.letters.all())
        if self.store is None or time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        try:
            found = await self.store.read_all()
        except StateStoreError as error:
            self._redis.failed(str(error).removeprefix("Redis failed: "))
            return
        self._redis.answered()
        self._views = {name: view for name, view in found.items() if isinstance(view, StreamView)}
        self._unreadable = sorted(set(found) - set(self._views))

    def keep(self) -> None:
        """Keep the own streams as they are now, because the connection to Kafka is lost."""
        self._kept = {name: self._make(runner).view for name, runner in self._own().items()}

    def deployment(self) -> Deployment:
        """Return the facts about the deployment."""
        kafka, outages = self._settings.kafka, tuple(self._outages())
        listed = ", ".join(self._unreadable)
        unreadable = f"the views of these streams cannot be read: {listed}" if listed else None
        reading = self._feed.reading if not outages else None
        problems = [*(each.message for each in outages), *filter(None, (unreadable, reading))]
        return Deployment(
            group=kafka.group_id,
            host=self._host,
            topic_prefix=kafka.topic_prefix,
            shared=self._settings.redis is not None,
            problem="; ".join(problems) or None,
            outages=outages,
            now=now(),
        )

    def _outages(self) -> list[Outage]:
        found = []
        if (kafka := self._kafka()) is not None:
            found.append(outage_of_kafka(kafka, self._settings, self._host))
        if self._settings.redis is not None and (redis := self._redis.silence) is not None:
            found.append(outage_of_redis(redis, self._settings.redis.shown))
        # Without Kafka, nobody expects its topics.
        if kafka is None and (history := self._feed.watched.silence) is not None:
            found.append(outage_of_history(history))
        return found

    async def states(self) -> dict[str, StreamState]:
        """Return all streams by name, sorted. Commits continue meanwhile, also with many streams."""
        away, own = self._kafka(), self._own()
        if away is None and own:
            self._kept = {}
        unknown = self._settings.streams if away is not None else ()
        names = sorted({*own, *self._views, *self._kept, *unknown})
        found = dict[str, StreamState]()
        async for name in in_pieces(names, PIECE):
            if (state := self._of(name, own.get(name))) is not None:
                found[name] = state
        self._made = {name: made for name, made in self._made.items() if name in found}
        return found

    def state(self, name: str) -> StreamState | None:
        """Return one stream; None if it is not known."""
        return self._of(name, self._own().get(name))

    def _of(self, name: str, runner: "StreamRunner | None") -> StreamState | None:
        view, kept = self._views.get(name), self._kept.get(name)
        # One that is still reading its log knows less than its former coordinator knew. One that is read at
        # its limit, or stalls, does so for long, and its condition has the reason.
        if runner is not None and ((view is None and kept is None) or not _reads(runner)):
            return self._live(runner)
        if kept is not None and (view is None or view.revision <= kept.revision):
            return self._state(kept.model_copy(update={"updated_at": self._answered()}), own=True)
        if view is not None:
            return self._state(view, own=runner is not None)
        return self._unknown(name) if self._kafka() is not None else None

    def _answered(self) -> int:
        """Return the time for which the state of an own stream holds."""
        away = self._kafka()
        return now() if away is None else away.since

    def _unknown(self, name: str) -> StreamState | None:
        """Return a stream of the settings that nothing is known of; None if they do not have it."""
        settings = self._settings.streams.get(name)
        if settings is None:
            return None
        view = StreamView(
            stream=name,
            revision=-1,
            updated_at=self._answered(),
            commit_user=settings.commit_user,
            table=settings.table,
            owner=settings.owner or None,
            conditions=(ConditionView(kind="wait", code="not-read", message=_NOT_READ.format(stream=name)),),
        )
        return self._state(view, own=True)

    def checkpoints(self, stream: str) -> Checkpoints | None:
        """Return the checkpoints of an own stream; None: it is no own one."""
        runner = self._own().get(stream)
        if runner is None:
            return None
        return Checkpoints(stream=stream, checkpoints=pending_checkpoints(runner.machine.replica.log))

    def _live(self, runner: "StreamRunner") -> StreamState:
        made, as_of = self._make(runner), self._answered()
        # Without Kafka, heartbeats are missing for another reason than the end of a query.
        machine, activity = runner.machine, runner.machine.activity
        silent = silent_regions(
            machine.replica.state,
            activity.heard,
            activity.intervals,
            machine.conditions(),
            as_of,
            machine.settings.silence,
        )
        view = made.view.model_copy(update={"updated_at": as_of, "silent": silent})
        since, left = oldest_sealed(machine.replica.log), _left(machine, silent)
        found = reasons.reasons_of(view, as_of, runner.settings, since, left)
        return self._state(view, own=True, live=True, found=found, size=made.size)

    def _make(self, runner: "StreamRunner") -> _Made:
        """Return the view of an own stream; it is made again if the stream has changed."""
        machine, name = runner.machine, runner.stream
        applied = machine.replica.applied
        conditions = tuple((each.kind, each.problem) for each in machine.conditions())
        made = self._made.get(name)
        own = runner.listener_views()
        if made is None or (made.applied, made.conditions, made.listeners) != (applied, conditions, own):
            made = _Made(applied, conditions, own, runner.view(), pending_bytes(machine.replica.log))
            self._made[name] = made
        return made

    def _state(
        self,
        view: StreamView,
        *,
        own: bool,
        live: bool = False,
        found: Sequence[reasons.Reason] | None = None,
        size: int | None = None,
    ) -> StreamState:
        """Return a state; `own`: this coordinator serves the stream. `live`: its values are of now."""
        name, away = view.stream, self._kafka()
        if found is None:
            found = reasons.reasons_of(view, now(), self._settings.streams.get(name))
        if away is not None and own:
            # Steps that need Kafka fail as well.
            found = [waits_for_kafka(name, away), *(each for each in found if each.code != Code.RETRYING)]
        more = _letters(name, self._letters.get(name, ()))
        return StreamState(
            stream=name,
            live=live,
            own=own,
            reasons=tuple(
                Reason.model_validate(each._asdict()) for each in reasons.in_order([*found, *more])
            ),
            pending_bytes=size,
            delays=self._feed.history.delays(name),
            committed_at=self._feed.history.committed_at(name),
            view=view,
        )
