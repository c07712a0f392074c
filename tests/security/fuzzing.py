"""What must hold whatever stands in the log: for the codec, for a machine, and for a real coordinator."""

import asyncio
import json
from collections import Counter
from random import Random
from typing import Final

from aiokafka import AIOKafkaProducer

from sluicegate.coordinator.core.state import StateRecord
from sluicegate.events import BadBody, EventType, Poison, read_body, read_envelope, read_event
from sluicegate.events.models import CheckpointCompleted, FilesWritten, StreamCommand
from tests.core.scene import Scene, opened
from tests.integration.conftest import Place, neighbour
from tests.integration.coordinator import running
from tests.integration.job import Job, read_ids
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


def words(found: Counter[str]) -> str:
    """Counts as JSON."""
    return json.dumps(dict(sorted(found.items())))
