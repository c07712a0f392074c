"""Properties that hold with any messages in the log: for the codec, for a machine, for a real coordinator."""

import asyncio
import json
from collections import Counter
from random import Random
from typing import Final

from aiokafka import AIOKafkaProducer, ConsumerRecord

from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.stream.state_records import decode_record, encode_record
from sluicegate.events.codec import Flaw, read_attributes, read_body, read_files, read_record
from sluicegate.events.dead_letters import Mark, read_letter
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import UNCOUNTED, Envelope, EventType, LogRecord, partition_of
from sluicegate.events.models import (
    Assignment,
    CheckpointCompleted,
    FileInfo,
    FilesWritten,
    RegionRegistered,
    StreamCommand,
    StreamPolicy,
)
from sluicegate.events.notifications import read_notification
from sluicegate.events.problems import Code, Problem
from tests.golden.coordinator import STREAM, Coordinator, Entry, World
from tests.golden.writing import SETTINGS, LogWords
from tests.integration.conftest import Place, neighbour
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, Job, read_ids, read_records
from tests.integration.waiting import until
from tests.security.hostile import Hostile, RawMessage

INCARNATIONS: Final = {"r1": "q1", "r2": "q2"}
"""Incarnations of the honest regions."""
_STEPS: Final = 60


class Broken(AssertionError):
    """A message did harm; the text names its seed."""


# --- the codec ------------------------------------------------------------------------------------


def read_hostile(seed: int, messages: int) -> Counter[str]:
    """Read damaged messages; return how many were events, and how many not. Raises Broken."""
    hostile, found = Hostile(seed), Counter[str]()
    for number in range(messages):
        for made, read in ((hostile.message, _read), (hostile.notification, _read_notification)):
            message = made()
            try:
                found[read(message)] += 1
            except Exception as error:
                raise Broken(f"seed {seed}, message {number}: {message!r}"[:2000]) from error
    return found


def _read(message: RawMessage) -> str:
    envelope = read_attributes(message.headers)
    for kind in EventType:
        # A body that is read becomes part of records and answers, so it has to survive JSON unchanged.
        body = read_body(kind, message.value)
        if isinstance(body, Problem):
            _check_problem(body)
        elif type(body).model_validate_json(body.model_dump_json(), strict=True) != body:
            raise Broken(f"{kind} changes on its way")
    record, flaw = read_record(0, 0, message.headers, message.value)
    if flaw is not None:
        _check_problem(flaw.problem)
    if isinstance(envelope, Flaw):
        return "no event"
    files = read_files(envelope, message.value) if envelope.type is EventType.FILES_WRITTEN else None
    if isinstance(files, Problem):
        _check_problem(files)
    if record is not None and envelope.files == UNCOUNTED:
        # The body is counted in the place of the attribute.
        envelope = envelope._replace(files=record.envelope.files, rows=record.envelope.rows)
        envelope = envelope._replace(bytes=record.envelope.bytes)
    if record is None or record.envelope != envelope:
        raise Broken(f"{record} is not read as {envelope}")
    return "no body" if flaw is not None or isinstance(files, Problem) else "event"


def _read_notification(message: RawMessage) -> str:
    read = read_notification(message.headers, message.value)
    if isinstance(read, Flaw):
        _check_problem(read.problem)
        return "no notification"
    return "notification"


def _check_problem(problem: Problem) -> None:
    """A problem becomes part of a dead letter, so it has to be encodable, and short."""
    if len(problem.model_dump_json().encode()) > 5_000:
        raise Broken(f"a problem is too long: {problem}")


# --- a machine ------------------------------------------------------------------------------------


class _World(World):
    """A world in which files are named by the offset of their event: ids may be of any form."""

    def files(self, offset: int, location: str = "") -> FilesWritten:
        """Return the body of the event at an offset."""
        info = FileInfo(path=f"file-{offset}", size=1, rows=10)
        return FilesWritten(
            format="memory", format_version=1, location="memory://t", schema_id=0, files=(info,)
        )


class _Honest(LogWords):
    """Two honest regions of a world."""

    def __init__(self) -> None:
        self.world = _World(SETTINGS, lambda line: None)
        self._batches = Counter[str]()

    @property
    def batches(self) -> int:
        """Number of batches of both."""
        return self._batches.total()

    def batch(self, region: str) -> None:
        """Write and complete the next batch of a region."""
        number = self._batches[region]
        self._batches[region] += 1
        self.do_batch(region, INCARNATIONS[region], str(number), f"{region}-{number}")


def confuse_machine(seed: int) -> Counter[str]:
    """Run two honest regions among hostile events, with restarts; return the commits. Raises Broken."""
    random, honest = Random(seed), _Honest()
    world = honest.world
    hostile = Hostile(seed, ((STREAM, "r1", "q1"), (STREAM, "r2", "q2"), (STREAM, "r3", "q3")))
    rate = random.choice((0.05, 0.2, 1.0))
    try:
        coordinator = Coordinator(world)
        coordinator.work()
        for region, incarnation in INCARNATIONS.items():
            honest.do_register(region, incarnation)
        coordinator.work()
        _require_honest(coordinator)
        for _ in range(_STEPS):
            world.now += random.randrange(50)
            if random.random() < 0.3:
                honest.batch(random.choice(("r1", "r2")))
            if random.random() < rate:
                _append(world, hostile.message())
            if random.random() < 0.2:
                # A stranger's orders are obeyed, too, so an operator has to resume the stream.
                world.append(EventType.STREAM_COMMAND, StreamCommand(command="resume"))
            if random.random() < 0.05:
                coordinator = Coordinator(world)
            coordinator.work()
        _judge(world, coordinator)
    except Exception as error:
        raise Broken(f"seed {seed}: {error!r}"[:2000]) from error
    return Counter(committed=len(world.table.history), honest=honest.batches)


def _require_honest(coordinator: Coordinator) -> None:
    if coordinator.machine.replica.state.regions.keys() != INCARNATIONS.keys():
        raise Broken("an honest region is refused")


def _append(world: World, message: RawMessage) -> None:
    record, flaw = read_record(len(world.log), world.now, message.headers, message.value)
    if record is None or (flaw is not None and flaw.stalls):
        return
    if flaw is not None:
        world.garbled.add(len(world.log))
    world.log.append(Entry(world.now, record.envelope._replace(stream=STREAM), record.body))


def _judge(world: World, coordinator: Coordinator) -> None:
    """Every honest file is at most once in the table, and only if a completion names its event."""
    log = world.log
    named = {
        each for entry in log if isinstance(entry.body, CheckpointCompleted) for each in entry.body.events
    }
    events = {
        f"file-{offset}": entry.envelope.id
        for offset, entry in enumerate(log)
        if entry.envelope.type is EventType.FILES_WRITTEN and entry.envelope.id.startswith(("r1-", "r2-"))
    }
    held = Counter(world.table.files)
    wrong = [path for path, times in held.items() if path in events and times > 1]
    wrong += [path for path in held if path in events and events[path] not in named]
    if wrong:
        raise Broken(f"committed wrongly: {wrong}")
    record = coordinator.machine.record()
    if decode_record(STREAM, encode_record(record)) != record:
        raise Broken("the state record changes on its way")


# --- a real coordinator ---------------------------------------------------------------------------

TARGETS: Final = (("flights", "r1", "q1"), ("flights", "r9", "q9"), ("nobody", "r1", "q1"))
HOME: Final = partition_of("flights", PARTITIONS)


async def attack(place: Place, seed: int, rounds: int, flood: int) -> Counter[str]:
    """Run a real coordinator and two real streams on one partition; one of them is attacked.

    The other must not notice. Of the attacked one, no honest row may be in the table twice, and no foreign
    row at all. Returns the number of rows.
    """
    beside = neighbour("flights", same=True)
    hostile = Hostile(seed, TARGETS)
    async with place.job() as target, place.job(beside) as other, _producer(place) as producer:
        async with running(place.settings("flights", beside)):
            await target.register()
            await other.register()
            for number in range(rounds):
                await target.run_batch([2 * number])
                await _send(producer, target, [_of_this_version(hostile) for _ in range(flood)])
                await target.send(EventType.STREAM_COMMAND, StreamCommand(command="resume"))
                await other.run_batch([2 * number + 1])
            odd = [2 * number + 1 for number in range(rounds)]
            await until(lambda: read_ids(place.table), lambda rows: [row for row in rows if row % 2] == odd)
        async with running(place.settings("flights", beside)):
            await other.run_batch([2 * rounds + 1])
            await until(lambda: read_ids(place.table), lambda rows: 2 * rounds + 1 in rows)
    rows = read_ids(place.table)
    even = [row for row in rows if row % 2 == 0]
    if len(set(rows)) != len(rows) or not set(even) <= set(range(0, 2 * rounds, 2)):
        raise Broken(f"seed {seed}: the table has {rows}")
    return Counter(rows=len(rows), of_the_attacked=len(even), sent=rounds * flood)


def _of_this_version(hostile: Hostile) -> RawMessage:
    """Return a message that does not stall its stream until an upgrade, as a newer one does."""
    while True:
        message = hostile.message()
        read = read_attributes(message.headers)
        if not isinstance(read, Flaw) or not read.stalls:
            return message


def _producer(place: Place) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=place.bootstrap, acks="all")


async def _send(producer: AIOKafkaProducer, job: Job, messages: list[RawMessage]) -> None:
    futures = [
        await producer.send(
            job.topics.events, message.value, key=b"hostile", partition=HOME, headers=list(message.headers)
        )
        for message in messages
    ]
    await asyncio.gather(*futures)


async def classify_all(place: Place, seed: int, count: int) -> Counter[str]:
    """Send so many hostile messages to a real coordinator, and find for each its letter or its code.

    Another stream of the partition has pending events, so that a restart reads all of them again. No letter
    may come twice. Returns the number of messages of each class. Raises Broken.
    """
    beside = neighbour("flights", same=True)
    settings = place.settings("flights", beside)
    hostile = Hostile(seed, TARGETS)
    async with place.job() as target, place.job(beside) as other, _producer(place) as producer:
        async with running(settings) as service:
            await other.register()
            await other.written(other.write_files([1]))
            first = service._runners[HOME].position
            await target.register()
            await target.run_batch([2])
            await _send(producer, target, [_of_this_version(hostile) for _ in range(count)])
            await _all_handled(service)
            if service._runners[HOME].first_needed() > first:
                raise Broken("a restart would read nothing again")
        classes = await _classify_log(place, beside)
        before = await _letters(place)
        async with running(settings) as service:
            await _all_handled(service)
        if await _letters(place) != before:
            raise Broken(f"seed {seed}: a restart sent letters again")
        return classes


async def _all_handled(service: Service) -> None:
    """Wait until the partition is read to its end and no letter waits."""
    runner = service._runners[HOME]

    async def rest() -> int:
        return await runner.end_offset() - runner.position + (runner.letters.waiting if runner.started else 1)

    await until(rest, lambda left: left == 0)


async def _letters(place: Place) -> Counter[tuple[int, str]]:
    """Return how often there is a letter of an offset and a code."""
    records = await read_records(place.bootstrap, place.topics.dead_letters)
    read = [read_letter(record) for record in records]
    letters = [each[1] for each in read if each is not None and not isinstance(each, Mark)]
    return Counter((letter.place.offset, letter.code) for letter in letters)


async def _classify_log(place: Place, beside: str) -> Counter[str]:
    """Judge each message of the log by itself, and compare with the letters. Raises Broken."""
    letters = await _letters(place)
    replicas = {name: Replica(name, HOME) for name in ("flights", beside)}
    classes, expected, late = Counter[str](), Counter[tuple[int, str]](), set[tuple[int, str]]()
    for record in await read_records(place.bootstrap, place.topics.events):
        if record.partition != HOME:
            continue
        for verdict in classify(record, replicas):
            classes[verdict] += 1
            kind, _, code = verdict.partition(" ")
            if kind == "letter":
                expected[record.offset, code] += 1
            elif verdict == "unread body":
                late.add((record.offset, Code.MALFORMED_BODY))
    found = Counter({key: times for key, times in letters.items() if key not in late or times > 1})
    if found != expected:
        raise Broken(f"missing letters: {expected - found}, letters too many: {found - expected}"[:2000])
    return classes


def classify(record: ConsumerRecord, replicas: dict[str, Replica]) -> list[str]:
    """Return the class of a message: `letter CODE` (also two), `ignored CODE`, `unread body` or `effect`."""
    read, flaw = read_record(record.offset, record.timestamp, record.headers, record.value)
    if read is None:
        if flaw is None:
            raise Broken(f"offset {record.offset} is neither a record nor a flaw")
        return [f"letter {_code_of_unread(flaw, replicas)}"]
    replica = replicas.get(read.envelope.stream)
    if replica is None:
        return [f"letter {Code.UNKNOWN_STREAM}"]
    ignored = replica.step(read).ignored
    found = [f"letter {flaw.problem.code}"] if flaw is not None else []
    completes = read.envelope.type is EventType.CHECKPOINT_COMPLETED
    if completes and ignored is not None and ignored.code is Code.NOT_LIVE:
        found.append(f"letter {Code.NOT_LIVE}")
    return found or [_without_letter(record, read, ignored)]


def _code_of_unread(flaw: Flaw, replicas: dict[str, Replica]) -> Code:
    """A record of a newer version stalls its stream; without a stream of this member it is a letter."""
    if flaw.stream in replicas and flaw.stalls:
        raise Broken(f"a message stalls {flaw.stream}: {flaw.problem}")
    if flaw.stalls:
        return Code.UNKNOWN_STREAM
    return flaw.problem.code


def _without_letter(record: ConsumerRecord, read: LogRecord, ignored: Problem | None) -> str:
    if ignored is not None:
        return f"ignored {ignored.code}"
    written = read.envelope.type is EventType.FILES_WRITTEN
    unread = written and isinstance(read_files(read.envelope, record.value), Problem)
    return "unread body" if unread else "effect"


def classify_hostile(seed: int, messages: int) -> Counter[str]:
    """Classify messages of a log that no coordinator reads; return the number of each. Raises Broken."""
    hostile = Hostile(seed, (("sim", "r1", "q1"), ("sim", "r2", "q2"), ("nobody", "r1", "q1")))
    replica, found = Replica("sim", 0), Counter[str]()
    policy = StreamPolicy(number=1, partial="allow", max_consecutive_fallbacks=3, allowed_locations=("x",))
    body = RegionRegistered(assignment=Assignment(number=0, regions=("r1", "r2")), table="memory://sim")
    honest = [
        encode_event(Envelope("policy", EventType.STREAM_POLICY, "sim"), policy, 0),
        *(
            encode_event(Envelope(f"run-{name}", EventType.REGION_REGISTERED, "sim", name, own), body, 0)
            for name, own in INCARNATIONS.items()
        ),
    ]
    log = [RawMessage(message.value, tuple(message.headers)) for message in honest]
    log += [_of_this_version(hostile) for _ in range(messages)]
    for offset, message in enumerate(log):
        record = ConsumerRecord("t", 0, offset, offset, 1, b"", message.value, None, 0, 0, message.headers)
        try:
            found.update(classify(record, {"sim": replica}))
        except Exception as error:
            raise Broken(f"seed {seed}, message {offset}: {error!r}: {message!r}"[:2000]) from error
    return found


def words(found: Counter[str]) -> str:
    """Return counts as JSON."""
    return json.dumps(dict(sorted(found.items())))
