"""Publishing from blocking code: acknowledged, or a clear error; across forks, freezes and sizes."""

import os
import uuid
from contextlib import closing

import pytest

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.events.envelope import EventType
from sluicegate.events.models import Assignment, CheckpointCompleted, RegionHeartbeat
from sluicegate.writer_hooks import EventTooLarge, PublishFailed
from sluicegate.writer_hooks.publisher import Publisher, encoded, shared_publisher
from sluicegate.writer_hooks.region import Event, KafkaSettings, Region
from tests.hooks.log import Log
from tests.integration.waiting import BACKSTOP

pytestmark = pytest.mark.kafka


def region(log: Log) -> Region:
    return Region(
        stream="flights",
        name="JFK",
        kafka=KafkaSettings(bootstrap_servers=log.bootstrap),
        assignment=Assignment(number=0, regions=("JFK",)),
        topic_prefix=log.names.prefix,
    )


def beat(log: Log) -> Event:
    return region(log).event(EventType.REGION_HEARTBEAT, "q.0", RegionHeartbeat(run="r"))


def completion(log: Log, events: int) -> Event:
    body = CheckpointCompleted(
        events=tuple(str(uuid.uuid4()) for _ in range(events)), predecessor=None, source_digest="d"
    )
    return region(log).event(EventType.CHECKPOINT_COMPLETED, "q.0", body, checkpoint=0)


def ids(log: Log) -> list[str]:
    return [event.envelope.id for event in list(log.events)]


@pytest.mark.seam
def test_large_completion_fits_when_compressed(log: Log) -> None:
    publisher = shared_publisher(KafkaSettings(bootstrap_servers=log.bootstrap))
    large = completion(log, 40_000)
    publisher.publish(log.names.events, [large], BACKSTOP)
    log.wait(lambda: large.envelope.id in ids(log), "the large completion")
    with pytest.raises(EventTooLarge, match=r"max\.message\.bytes"):
        publisher.publish(log.names.events, [completion(log, 100_000)], BACKSTOP)
    after = beat(log)
    publisher.publish(log.names.events, [after], BACKSTOP)
    log.wait(lambda: after.envelope.id in ids(log), "the event after the refused one")


@pytest.mark.parametrize("batch", [4 << 20, 16 << 10, 512 << 10])
@pytest.mark.parametrize("count", [3, 100])
def test_a_completion_follows_its_events_whatever_fits_into_a_batch(
    log: Log, monkeypatch: pytest.MonkeyPatch, batch: int, count: int
) -> None:
    """The largest batch exceeds the limit of the topic, the smallest one holds no two of the events."""
    monkeypatch.setattr("sluicegate.writer_hooks.publisher._BATCH", batch)
    settings = KafkaSettings(bootstrap_servers=log.bootstrap, compression_type="none")
    files, last = [completion(log, 500) for _ in range(count)], completion(log, 1)
    with closing(Publisher(settings)) as publisher:
        publisher.publish(log.names.events, [last], BACKSTOP, first=encoded(files))
    log.wait(lambda: last.envelope.id in ids(log), "the completion")
    assert ids(log) == [event.envelope.id for event in [*files, last]]


@pytest.mark.seam
def test_a_completion_without_its_events_is_never_published(log: Log) -> None:
    """The first completion counts, and a later one that names other events would be a replay."""
    settings = KafkaSettings(bootstrap_servers=log.bootstrap)
    with closing(Publisher(settings)) as publisher:
        large = encoded([completion(log, 100_000)])
        with pytest.raises(EventTooLarge):
            publisher.publish(log.names.events, [completion(log, 1)], BACKSTOP, first=large)
        after = beat(log)
        publisher.publish(log.names.events, [after], BACKSTOP)
    log.wait(lambda: after.envelope.id in ids(log), "the event after the refused one")
    assert ids(log) == [after.envelope.id]


def test_child_process_has_a_producer_of_its_own(log: Log) -> None:
    settings = KafkaSettings(bootstrap_servers=log.bootstrap)
    parents, childs, last = beat(log), beat(log), beat(log)
    shared_publisher(settings).publish(log.names.events, [parents], BACKSTOP)
    before = shared_publisher(settings)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if shared_publisher(settings) is not before:
                shared_publisher(settings).publish(log.names.events, [childs], BACKSTOP)
                status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    shared_publisher(settings).publish(log.names.events, [last], BACKSTOP)
    log.wait(lambda: len(ids(log)) == 3, "three events")
    assert ids(log) == [parents.envelope.id, childs.envelope.id, last.envelope.id]


def test_frozen_broker_fails_in_time_and_recovers(own_kafka: EmbeddedKafka, unique: str) -> None:
    publisher = Publisher(KafkaSettings(bootstrap_servers=own_kafka.bootstrap))
    with Log(own_kafka.bootstrap, unique) as log, closing(publisher):
        publisher.publish(log.names.events, [beat(log)], BACKSTOP)
        lost = beat(log)
        own_kafka.suspend()
        try:
            with pytest.raises(
                PublishFailed, match=r"within 1 s.*trying again is safe. Check that the brokers run"
            ):
                publisher.publish(log.names.events, [lost], 1)  # time: the broker is frozen
        finally:
            own_kafka.resume()
        publisher.publish(log.names.events, [lost], BACKSTOP)
        log.wait(lambda: lost.envelope.id in ids(log), "the event, sent again")
        own_kafka.restart()
        again = beat(log)
        publisher.publish(log.names.events, [again], BACKSTOP)
        log.wait(lambda: again.envelope.id in ids(log), "the event after a restart")
