"""The group's offset waits for the letters: no message is passed whose letter is not acknowledged."""

from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaTimeoutError

from sluicegate.kafka.producer import SessionProducer
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.letters import home_of
from tests.integration.test_letters_once import flood, once, sent, settled
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


async def group_offset(place: Place) -> int | None:
    """The offset that the group has committed for the partition of `flights`."""
    source = TopicPartition(place.topics.events, home_of("flights"))
    async with AIOKafkaConsumer(
        bootstrap_servers=place.bootstrap, group_id=place.prefix, enable_auto_commit=False
    ) as consumer:
        consumer.assign([source])
        offset: int | None = await consumer.committed(source)
        return offset


async def test_the_offset_waits_for_letters_that_are_not_acknowledged(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits go on meanwhile; the next life sends the letters, each once."""
    send = SessionProducer.send

    async def refuse_letters(self: SessionProducer, topic: str, *message: Any, **how: Any) -> Any:
        if topic == place.topics.dead_letters:
            raise KafkaTimeoutError
        return await send(self, topic, *message, **how)

    async with place.job() as job:
        async with running(place.settings()) as service:
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            monkeypatch.setattr(SessionProducer, "send", refuse_letters)
            offsets = await flood(job, 30)
            await job.run_batch([2])
            await job.committed([1, 2])
            runner = service._runners[home_of("flights")]
            await until(lambda: runner.position > offsets[-1])
            assert runner.letters.first_waiting() == offsets[0]
            assert runner.low_water() <= offsets[0]
        held = await group_offset(place)
        assert held is not None
        assert held <= offsets[0]
        assert await sent(job) == []
        monkeypatch.undo()
        async with running(place.settings()) as service:
            await until(lambda: settled(service, job, offsets[-1]))
        once(await sent(job), offsets)
        held = await group_offset(place)
        assert held is not None
        assert held > offsets[-1]
