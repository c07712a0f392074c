"""Reads the ends of the commits topic and of the dead-letter topic, and follows both."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.coordinator.replay.decisions import ReplayRefused
from sluicegate.coordinator.replay.log import partitions_of
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.web.model import Cut, DeadLetter, Delays, RegionOfCut
from sluicegate.coordinator.web.outages import Watched
from sluicegate.events.codec import Flaw
from sluicegate.events.dead_letters import Mark, read_letter
from sluicegate.events.models import CutAbandoned, CutReverted, Position
from sluicegate.events.notifications import Committed, Notification, read_notification
from sluicegate.kafka.clients import spread, started
from sluicegate.kafka.reading import read_on

# The newest cuts of each stream, made from the messages of the commits topic.

KEPT: Final = 50
"""Cuts of each stream."""
COMMITS: Final = ("full", "forced", "partial")
"""Outcomes with which rows became visible."""
MOST_CELLS: Final = 400_000
"""Regions of cuts in memory, of all streams together. Each takes about 300 bytes."""


class _Ring:
    """The newest cuts of one stream, with what their regions did before."""

    def __init__(self) -> None:
        self.cuts: deque[Cut] = deque()
        self.regions: dict[str, RegionOfCut] = {}
        """As of the newest cut."""


class History:
    """The newest cuts of all streams."""

    def __init__(self, most_cells: int = MOST_CELLS) -> None:
        self._rings: dict[str, _Ring] = {}
        self._order: deque[str] = deque()
        """The stream of each cut, the oldest first."""
        self._cells, self._most_cells = 0, most_cells

    def add(self, notification: Notification, time: int) -> Cut | None:
        """Take a message in; return the cut, or None if it is known already or is about something else."""
        body = notification.body
        ring = self._rings.get(notification.stream)
        # A restart repeats what it announced last.
        if ring is not None and any(each.id == notification.id for each in ring.cuts):
            return None
        if not isinstance(body, Committed | CutAbandoned | CutReverted):
            return None
        ring = ring or self._rings.setdefault(notification.stream, _Ring())
        cut = _cut(notification.id, time, body, ring.regions)
        if isinstance(body, Committed):
            ring.regions = cut.regions
        ring.cuts.append(cut)
        self._order.append(notification.stream)
        self._cells += _cells(cut)
        if len(ring.cuts) > KEPT:
            self._order.remove(notification.stream)
            self._cells -= _cells(ring.cuts.popleft())
        while self._cells > self._most_cells and len(self._order) > 1:
            self._cells -= _cells(self._rings[self._order.popleft()].cuts.popleft())
        return cut

    def cuts(self, stream: str) -> tuple[Cut, ...]:
        """Return the cuts of a stream, the oldest first."""
        ring = self._rings.get(stream)
        return tuple(ring.cuts) if ring is not None else ()

    def committed_at(self, stream: str) -> int | None:
        """Return the time at which the newest commit of a stream was announced."""
        ring = self._rings.get(stream)
        commits = reversed(ring.cuts) if ring is not None else ()
        return next((each.time for each in commits if each.outcome in COMMITS), None)

    def delays(self, stream: str) -> Delays | None:
        """Return how fast the newest commits of a stream were."""
        found = sorted(each.delay for each in self.cuts(stream) if each.delay is not None)
        if not found:
            return None
        last = len(found) - 1
        return Delays(p50=found[last // 2], p99=found[round(last * 0.99)], commits=len(found))


def _cells(cut: Cut) -> int:
    return 1 + len(cut.regions)


def _cut(
    id_: str, time: int, body: Committed | CutAbandoned | CutReverted, before: dict[str, RegionOfCut]
) -> Cut:
    match body:
        case CutAbandoned():
            late = {name: before.get(name, RegionOfCut(state="idle")) for name in body.regions}
            regions = {name: each.model_copy(update={"state": "fell back"}) for name, each in late.items()}
            return Cut(
                id=id_,
                time=time,
                outcome="abandoned",
                decision=body.decision,
                attempt=body.attempt,
                regions=regions,
            )
        case CutReverted():
            return Cut(id=id_, time=time, outcome="reverted", decision=body.decision, snapshot=body.snapshot)
    names = sorted({*body.cut, *body.fallbacks})
    cut = Cut(
        id=id_,
        time=time,
        outcome="partial" if body.fallbacks else "full",
        decision=body.decision,
        snapshot=body.snapshot,
        watermark=body.watermark,
        files=body.files,
        regions={name: _region(name, time, body, before.get(name)) for name in names},
    )
    summary = body.summary
    if summary is None:
        return cut
    delay = None if summary.sealed is None else max(0, summary.visible - summary.sealed)
    times = summary.model_dump(include={"first_event", "sealed", "decided", "visible"})
    counts = {
        "rows": summary.total("rows"),
        "bytes": summary.total("bytes"),
        "partitions": summary.total("partitions"),
    }
    forced = {"outcome": "forced"} if summary.forced else {}
    return cut.model_copy(update={**times, **counts, **forced, "delay": delay})


def _region(name: str, time: int, body: Committed, before: RegionOfCut | None) -> RegionOfCut:
    at = body.fallbacks.get(name) or body.cut.get(name)
    place = {"incarnation": at.incarnation if at else None, "checkpoint": at.checkpoint if at else None}
    since = before.since if before is not None and _stands(before, at) else None
    if name in body.fallbacks:
        count = 1 + (before.fallbacks if before is not None else 0)
        return RegionOfCut(state="fell back", fallbacks=count, since=since, **place)
    # The outcome of a repair does not name the regions that moved.
    moved = name in body.summary.moved if body.summary is not None else not _stands(before, at)
    if moved:
        return RegionOfCut(state="moved", since=time, **place)
    return RegionOfCut(state="idle", since=since, **place)


def _stands(before: RegionOfCut | None, at: Position | None) -> bool:
    """True if a region stands where it stood before."""
    if before is None:
        return at is None
    return (before.incarnation, before.checkpoint) == (
        (at.incarnation, at.checkpoint) if at is not None else (None, None)
    )


# The newest dead letters, made from the messages of their topic.

LONGEST: Final = 2_000
"""Characters of a reason that are kept."""


class Letters:
    """The newest dead letters, each once."""

    def __init__(self) -> None:
        self._found: dict[str, DeadLetter] = {}

    def add(self, record: ConsumerRecord) -> DeadLetter | None:
        """Take a message in; return the letter that is new or was dealt with, or None."""
        read = read_letter(record)
        if isinstance(read, Mark):
            known = self._found.get(read.letter)
            if known is None:
                return None
            self._found[read.letter] = known.model_copy(update={"dealt": read.how})
            return self._found[read.letter]
        # Each coordinator that meets the message may send a copy.
        if read is None or read[0] in self._found:
            return None
        id_, content = read
        named = dict(content.headers).get("ce_stream")
        place = content.place
        self._found[id_] = DeadLetter(
            id=id_,
            offset=record.offset,
            time=record.timestamp,
            stream=named.decode(errors="replace") if named is not None else None,
            code=content.code,
            reason=content.reason[:LONGEST],
            source=f"{place.topic}, partition {place.partition}, offset {place.offset}",
        )
        if len(self._found) > KEPT:
            del self._found[next(iter(self._found))]
        return self._found[id_]

    def all(self) -> tuple[DeadLetter, ...]:
        """Return the letters, the oldest first."""
        return tuple(self._found.values())


log = structlog.get_logger(__name__)

TAIL: Final = 5_000
"""Messages before the end of each partition that are read at the start."""
PIECE: Final = 200
"""Messages that are read between two turns of the event loop."""
RETRY: Final = 2.0
POLL_MS: Final = 500
_READING: Final = "the history of commits is being read"


class Feed:
    """The newest cuts and dead letters of the whole deployment. Nothing is decided from them."""

    def __init__(self, settings: Settings) -> None:
        self.history = History()
        self.letters = Letters()
        self.reading: str | None = _READING
        """Sentence while the ends of the topics are read for the first time; None: they were read."""
        self.watched = Watched()
        self.listener: Callable[[str, Cut | DeadLetter], None] = lambda *_: None
        """Told of each new cut with its stream, and of each letter that is new or was dealt with."""
        self._settings = settings

    async def run(self) -> None:
        """Read until cancelled. An error of Kafka is reported, and the reading begins again."""
        while True:
            try:
                await self._follow()
            except (KafkaError, ReplayRefused, TimeoutError, OSError) as error:
                self.watched.failed(repr(error))
                log.debug("history not read", error=repr(error))
            except Exception as error:
                # The page lacks it, and nothing else depends on it.
                self.watched.failed(repr(error))
                log.exception("history not read, it is tried again")
            await asyncio.sleep(spread(RETRY))

    async def _follow(self) -> None:
        names = self._settings.kafka.topic_names()
        consumer = AIOKafkaConsumer(
            enable_auto_commit=False, auto_offset_reset="earliest", **self._settings.kafka.client_options()
        )
        async with started(consumer):
            sources = [
                TopicPartition(topic, number)
                for topic in (names.commits, names.dead_letters)
                for number in await partitions_of(consumer, topic)
            ]
            # The ends are read again, and what was read before would count as new.
            self.history, self.letters = History(), Letters()
            self.reading = _READING
            consumer.assign(sources)
            ends = await consumer.end_offsets(sources)
            for source, begin in (await consumer.beginning_offsets(sources)).items():
                consumer.seek(source, max(begin, ends[source] - TAIL))
            while True:
                read = await read_on(consumer, timeout_ms=POLL_MS, max_records=PIECE)
                for source, records in read.items():
                    self._take(records, letters=source.topic == names.dead_letters)
                if self.reading is not None and await self._at(consumer, ends):
                    self.reading = None
                if self.reading is None:
                    self.watched.answered()
                await asyncio.sleep(0)

    async def _at(self, consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> bool:
        return all([await consumer.position(source) >= end for source, end in ends.items()])

    def _take(self, records: list[ConsumerRecord], *, letters: bool) -> None:
        for record in records:
            if letters:
                if (letter := self.letters.add(record)) is not None:
                    self.listener(letter.stream or "", letter)
                continue
            read = read_notification(record.headers, record.value)
            if not isinstance(read, Flaw) and (cut := self.history.add(read, record.timestamp)) is not None:
                self.listener(read.stream, cut)
