"""What must hold whatever stands in the log: for the codec, for a machine, and for a real coordinator."""

import asyncio
import json
from collections import Counter
from random import Random
from typing import Final

from aiokafka import AIOKafkaProducer, ConsumerRecord

from sluicegate.coordinator.core.ignoring import rule_of
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.coordinator.runtime.service import Service
from sluicegate.coordinator.telemetry.lineages import not_live
from sluicegate.events.codec import BadBody, Poison, read_body, read_envelope, read_event
from sluicegate.events.encoding import encode
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Event
from sluicegate.events.dead_letters import LetterCode, Mark, read_letter
from sluicegate.events.models import (
    Assignment,
    CheckpointCompleted,
    FilesWritten,
    RegionOpened,
    StreamCommand,
    StreamPolicy,
)
from sluicegate.replay.course import Course
from tests.core.scene import Scene, opened
from tests.integration.conftest import Place, neighbour
from tests.integration.coordinator import running
from tests.integration.job import Job, read_ids, read_records
from tests.integration.letters import home_of
from tests.integration.waiting import until
from tests.security.hostile import Hostile, RawMessage

_STEPS: Final = 60


class Broken(AssertionError):
    """A message did harm; the text names its seed."""


def read_hostile(seed: int, messages: int) -> Counter[str]:
    """Read damaged messages; returns how many were events, and how many not. Raises Broken."""
    hostile, found = Hostile(seed), Counter[str]()
    for number in range(messages):
        message = hostile.message()
        try:
            found[_read(message)] += 1
        except Exception as error:
            raise Broken(f"seed {seed}, message {number}: {message!r}"[:2000]) from error
    return found


def _read(message: RawMessage) -> str:
    envelope = read_envelope(message.headers)
    for kind in EventType:
        try:
            # What is read stands in records and answers, so it has to come through JSON unchanged.
            body = read_body(kind, message.value)
            if type(body).model_validate_json(body.model_dump_json(), strict=True) != body:
                raise Broken(f"{kind} changes on its way")
        except BadBody as error:
            str(error).encode()
    if isinstance(envelope, Poison):
        envelope.reason.encode()
        return "no event"
    event = read_event(message.headers, message.value)
    return "no body" if isinstance(event, Poison) else "event"


def confuse_machine(seed: int) -> Counter[str]:
    """Two honest regions among hostile events, and restarts; returns what was committed. Raises Broken."""
    random, scene = Random(seed), opened("r1", "r2")
    hostile = Hostile(seed, (("sim", "r1", "q.0"), ("sim", "r2", "q.0"), ("sim", "r3", "q.0")))
    batches, rate = Counter[str](), random.choice((0.05, 0.2, 1.0))
    try:
        for _ in range(_STEPS):
            if random.random() < 0.3:
                region = random.choice(("r1", "r2"))
                scene.batch(batches[region], region)
                batches[region] += 1
            if random.random() < rate:
                _say(scene, hostile.message())
            if random.random() < 0.2:
                # What a stranger orders is obeyed too, so an operator has to say that it goes on.
                scene.command("resume")
                scene.settle(3)
            if random.random() < 0.05:
                scene.restart()
        scene.command("resume")
        scene.settle()
        _judge(scene)
    except Exception as error:
        raise Broken(f"seed {seed}: {error!r}"[:2000]) from error
    return Counter(committed=len(scene.world.table.snapshots), honest=batches.total())


def _say(scene: Scene, message: RawMessage) -> None:
    event = read_event(message.headers, message.value)
    if not isinstance(event, Poison):
        scene.world.append(event.envelope._replace(stream="sim"), event.body)


def _judge(scene: Scene) -> None:
    """Every honest file at most once in the table, and only if a completion names its event."""
    log = scene.world.log
    named = {id_ for entry in log if isinstance(entry.body, CheckpointCompleted) for id_ in entry.body.events}
    owner = {
        file.path: entry.envelope.id
        for entry in log
        if isinstance(entry.body, FilesWritten)
        for file in entry.body.files
        if file.path.startswith(("r1/", "r2/"))
    }
    held = Counter(path for snapshot in scene.world.table.snapshots for path in snapshot.files)
    wrong = [path for path, times in held.items() if path in owner and times > 1]
    wrong += [path for path in held if path in owner and owner[path] not in named]
    if wrong:
        raise Broken(f"committed wrongly: {wrong}")
    StateRecord.model_validate_json(scene.machine.record().model_dump_json())


async def attack(place: Place, seed: int, rounds: int, flood: int) -> Counter[str]:
    """A real coordinator and two real streams on one partition; one of them is attacked.

    The other must not notice, and of the attacked one no honest row may be twice in the table, nor a foreign
    one in it at all. Returns what became of the rows.
    """
    beside = neighbour("flights", same=True)
    hostile = Hostile(seed, (("flights", "r1", "q1.0"), ("flights", "r9", "q.0"), ("nobody", "r1", "q.0")))
    async with place.job() as target, place.job(beside) as other, _producer(place) as producer:
        async with running(place.settings("flights", beside)):
            await target.open()
            await other.open()
            for number in range(rounds):
                await target.run_batch([2 * number])
                await _send(producer, target, [_of_this_version(hostile) for _ in range(flood)])
                await target.say(EventType.STREAM_COMMAND, StreamCommand(command="resume"))
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
    """A message that does not end the matter at once: what is newer stalls its stream until an upgrade."""
    while True:
        message = hostile.message()
        read = read_envelope(message.headers)
        if not isinstance(read, Poison) or not read.newer_version:
            return message


def _producer(place: Place) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=place.bootstrap, acks="all")


async def _send(producer: AIOKafkaProducer, job: Job, messages: list[RawMessage]) -> None:
    home = home_of(job.stream)
    futures = [
        await producer.send(
            job.topics.events,
            message.value,
            key=b"hostile",
            partition=home,
            headers=list(message.headers),
        )
        for message in messages
    ]
    await asyncio.gather(*futures)


async def classify_all(place: Place, seed: int, count: int) -> Counter[str]:
    """Send so many hostile messages to a real coordinator, and find for each its letter or its rule.

    Another stream of the partition has something pending, so that a restart reads all of them again. No
    letter may come twice. Returns what became of the messages. Raises Broken.
    """
    beside = neighbour("flights", same=True)
    settings = place.settings("flights", beside)
    hostile = Hostile(seed, (("flights", "r1", "q1.0"), ("flights", "r9", "q.0"), ("nobody", "r1", "q.0")))
    async with place.job() as target, place.job(beside) as other, _producer(place) as producer:
        async with running(settings) as service:
            await other.open()
            await other.written(other.write_files([1]))
            first = service._runners[home_of("flights")].position
            await target.open()
            await target.run_batch([2])
            await _send(producer, target, [_of_this_version(hostile) for _ in range(count)])
            await _all_dealt_with(place, service)
            if service._runners[home_of("flights")].low_water() > first:
                raise Broken("a restart would read nothing again")
        classes = await _classify(place, beside)
        before = await _letters(place)
        async with running(settings) as service:
            await _all_dealt_with(place, service)
        if await _letters(place) != before:
            raise Broken(f"seed {seed}: a restart sent letters again")
        return classes


async def _all_dealt_with(place: Place, service: Service) -> None:
    """Wait until the partition is read to its end and no letter waits."""
    runner = service._runners[home_of("flights")]

    async def rest() -> int:
        return await runner.end_offset() - runner.position + (runner.letters.waiting if runner.started else 1)

    await until(rest, lambda left: left == 0)


async def _letters(place: Place) -> Counter[tuple[int, str]]:
    """How often there is a letter of an offset and a reason code."""
    records = await read_records(place.bootstrap, place.topics.dead_letters)
    read = [read_letter(record) for record in records]
    letters = [each[1] for each in read if each is not None and not isinstance(each, Mark)]
    return Counter((letter.place.offset, letter.code) for letter in letters)


async def _classify(place: Place, beside: str) -> Counter[str]:
    """Judge each message of the log by itself, and compare with the letters. Raises Broken."""
    home, letters = home_of("flights"), await _letters(place)
    courses = {name: Course(name, None, 0) for name in ("flights", beside)}
    classes, expected, late = Counter[str](), Counter[tuple[int, str]](), set[tuple[int, str]]()
    for record in await read_records(place.bootstrap, place.topics.events):
        if record.partition != home:
            continue
        verdict = classify(record, courses)
        classes[verdict] += 1
        kind, _, code = verdict.partition(" ")
        if kind == "letter":
            expected[record.offset, code] += 1
        elif verdict == "unread body":
            late.add((record.offset, LetterCode.MALFORMED_BODY))
    found = Counter({key: times for key, times in letters.items() if key not in late or times > 1})
    if found != expected:
        raise Broken(f"missing letters: {expected - found}, letters too many: {found - expected}"[:2000])
    return classes


def classify(record: ConsumerRecord, courses: dict[str, Course]) -> str:
    """What becomes of a message: `letter CODE`, `rule RULE`, `unread body` or `effect`."""
    envelope = read_envelope(record.headers)
    if isinstance(envelope, Poison):
        return f"letter {envelope.flaw}"
    course = courses.get(envelope.stream)
    if course is None:
        return f"letter {LetterCode.UNKNOWN_STREAM}"
    unreadable = isinstance(read_event(record.headers, record.value), Poison)
    taken = course.take(record.offset, record.timestamp, record.headers, record.value)
    if taken is None:
        raise Broken(f"offset {record.offset} has no rule: {envelope}")
    if unreadable and envelope.type is not EventType.FILES_WRITTEN:
        return f"letter {LetterCode.MALFORMED_BODY}"
    if taken.ignored is None:
        return "unread body" if unreadable else "effect"
    completes = envelope.type is EventType.CHECKPOINT_COMPLETED
    if completes and not_live(course.book, envelope) is not None:
        return f"letter {LetterCode.LINEAGE_NOT_LIVE}"
    rule = rule_of(envelope.type, taken.ignored)
    if rule is None:
        raise Broken(f"offset {record.offset} has no rule: {taken.ignored}: {envelope}")
    return f"rule {rule}"


def classify_hostile(seed: int, messages: int) -> Counter[str]:
    """Classify messages of a log that no coordinator reads; returns what became of them. Raises Broken."""
    hostile = Hostile(seed, (("sim", "r1", "q.0"), ("sim", "r2", "q.0"), ("nobody", "r1", "q.0")))
    course, found = Course("sim", None, 0), Counter[str]()
    policy = StreamPolicy(number=1, partial="allow", max_consecutive_fallbacks=3, allowed_locations=("x",))
    body = RegionOpened(assignment=Assignment(number=0, regions=("r1", "r2")), table="memory://sim")
    honest = [
        encode(Event(Envelope("policy", EventType.STREAM_POLICY, "sim"), policy)),
        *(
            encode(Event(Envelope(f"open-{name}", EventType.REGION_OPENED, "sim", name, "q.0"), body))
            for name in ("r1", "r2")
        ),
    ]
    log = [RawMessage(message.value, tuple(message.headers)) for message in honest]
    log += [_of_this_version(hostile) for _ in range(messages)]
    for offset, message in enumerate(log):
        record = ConsumerRecord("t", 0, offset, offset, 1, b"", message.value, None, 0, 0, message.headers)
        try:
            found[classify(record, {"sim": course})] += 1
        except Exception as error:
            raise Broken(f"seed {seed}, message {offset}: {error!r}: {message!r}"[:2000]) from error
    return found


def words(found: Counter[str]) -> str:
    """Counts as JSON."""
    return json.dumps(dict(sorted(found.items())))
