"""Input that cannot be used becomes a dead letter with a code, and nothing else is lost."""

import aiohttp
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from sluicegate.events.codec import EVENT_SHAPES
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType, wire_type, with_counts
from sluicegate.events.models import CheckpointCompleted, Position
from sluicegate.events.problems import Code
from sluicegate.kafka.reading import read_batches
from sluicegate.writer_hooks import AsyncRegionDriver
from tests.integration.conftest import Place, neighbour
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, read_ids
from tests.integration.letters import (
    RawName,
    codes,
    headers_of,
    home_of,
    letters,
    put_batch,
    put_raw,
    source,
    stalled,
    stalls,
    typed,
)
from tests.integration.orders import sluicegate
from tests.integration.test_python_driver import options_of, put
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside a known stream"])
async def test_what_a_stream_sends_while_it_is_not_configured_is_committed_later(
    place: Place, alone: bool
) -> None:
    """The stream was configured before, so its registration counts."""
    other = neighbour("flights", same=not alone)
    async with place.job(other) as job:
        async with running(place.settings("flights", other)):
            assert (await job.register()).accepted
        await job.run_batch([1, 2])
        async with running(place.settings()):
            found = await until(lambda: codes(job), lambda seen: len(seen) >= 2)
            assert all(code == Code.UNKNOWN_STREAM for _, code in found)
        assert read_ids(place.table) == []
        async with running(place.settings("flights", other)):
            await job.committed([1, 2])
            await job.run_batch([3])
            await job.committed([1, 2, 3])
        # The first life could not know the stream, so also its registration has a letter.
        assert {code for _, code in await codes(job)} == {Code.UNKNOWN_STREAM}


@pytest.mark.seam
async def test_files_without_json_exclude_their_region(place: Place, impatient: None) -> None:
    async with running(place.settings()), place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        headers = headers_of(job, typed("files.written"), checkpoint=1, ce_files="1")
        bad = await put_raw(job, b"no json", headers)
        good = await job.written(job.write_files([2]))
        await job.complete(good, headers["ce_id"].decode())
        problem = (await until(lambda: stalls(job)))[0]
        assert (problem.code, problem.number) == (Code.BODY_UNREADABLE, bad)
        found = await until(lambda: codes(job))
        assert found == [(source(job, bad), Code.MALFORMED_BODY)]
        await job.run_batch([3])
        assert read_ids(place.table) == [1]
        assert len(await letters(job)) == 1


@pytest.mark.seam
async def test_broken_headers_are_put_aside_and_the_stream_goes_on(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        await job.register()
        await job.run_batch([1])
        wrong = headers_of(job, typed("checkpoint.completed"), ce_checkpoint="-7")
        first = await put_raw(job, b"{}", wrong)
        second = await put_raw(job, None, {})
        await job.run_batch([2])
        await job.committed([1, 2])
        found = await until(lambda: codes(job), lambda seen: len(seen) == 2)
        assert dict(found) == {
            source(job, first): Code.MALFORMED_ATTRIBUTE,
            source(job, second): Code.NO_EVENT,
        }


async def test_a_dead_letter_as_large_as_a_message_may_be_is_delivered(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        job.producer._max_request_size = 2 << 20
        await put_raw(job, b"x" * (1_048_588 - 100), {})
        await put_raw(job, b"small", {})
        assert len(await until(lambda: letters(job), lambda found: len(found) == 2)) == 2


@pytest.mark.seam
async def test_exactly_the_undecodable_records_are_skipped(place: Place) -> None:
    """Also those in one batch with good ones, in the events and among the state records."""
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
        files = job.write_files([2])
        writer, attempt = job.writers[files.files[0].path]
        envelope = Envelope("good", EventType.FILES_WRITTEN, "flights", "r1", "q1", 1, writer, attempt)
        good = encode_event(with_counts(envelope, files), files, 0)
        bad = (b"bad", [(RawName("name"), b""), ("ce_stream", b"flights")])
        batch = [(good.value, good.headers), bad, bad, (good.value, good.headers)]
        first = await put_batch(place.bootstrap, place.topics.events, home_of("flights"), [bad])
        second = await put_batch(place.bootstrap, place.topics.events, home_of("flights"), batch)
        await put_batch(place.bootstrap, place.topics.state, home_of("flights"), [bad])
        await job.complete("good")
        last = await put_batch(place.bootstrap, place.topics.events, home_of("flights"), [bad])
        expected = [source(job, offset) for offset in (first, second + 1, second + 2, last)]
        async with running(place.settings(memory={"body_budget": 1})):
            await job.committed([1, 2])
            await job.run_batch([3])
            await job.committed([1, 2, 3])
            found = await until(lambda: codes(job), lambda found: len(found) >= 4)
            assert found == [(at, Code.UNDECODABLE) for at in expected]
        async with running(place.settings()):
            await job.run_batch([4])
            await job.committed([1, 2, 3, 4])
        assert len(await letters(job)) == 4


async def test_undecodable_records_of_other_topics_stop_no_reader(place: Place) -> None:
    """State records, outcomes and letters: commands, the live page and drivers read them."""
    bad, home = (b"bad", [(RawName("name"), b""), ("ce_stream", b"flights")]), home_of("flights")
    names = place.topics
    for topic, partition in ((names.state, home), (names.commits, home), (names.dead_letters, 0)):
        await put_batch(place.bootstrap, topic, partition, [bad])
    async with running(place.settings()) as service, AsyncRegionDriver(options_of(place)) as driver:
        await driver.await_commit(await put(driver, 1))
        for topic, partition in ((names.commits, home), (names.dead_letters, 0)):
            await put_batch(place.bootstrap, topic, partition, [bad])
        await driver.await_commit(await put(driver, 2))
        assert "flights" in await sluicegate(place, "status", HTTP__PORT=str(service.http_port))
        url = f"http://127.0.0.1:{service.http_port}/api/v1/streams/flights/cuts"
        async with aiohttp.ClientSession() as session:

            async def cuts() -> list[object]:
                async with session.get(url) as answer:
                    found: list[object] = (await answer.json())["cuts"]
                    return found

            await until(cuts, lambda found: len(found) >= 2)
    assert read_ids(place.table) == [1, 2]


async def test_marks_of_foreign_transactions_hold_nothing_up(place: Place) -> None:
    """They take an offset and are no record: at the end of the log nothing would come behind them."""
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
        await job.run_batch([2])
        async with (
            AIOKafkaProducer(bootstrap_servers=place.bootstrap, transactional_id=place.prefix) as foreign,
            foreign.transaction(),
        ):
            await foreign.send_and_wait(place.topics.events, b"foreign", partition=home_of("flights"))
        async with running(place.settings()):
            await job.committed([1, 2])


async def test_an_undecodable_record_takes_nothing_from_other_partitions(place: Place) -> None:
    home, other = home_of("flights"), (home_of("flights") + 1) % PARTITIONS
    good = (b"good", [("name", b"")])
    await put_batch(place.bootstrap, place.topics.events, home, [good] * 5)
    bad = (b"bad", [(RawName("name"), b"")])
    await put_batch(place.bootstrap, place.topics.events, other, [bad])
    sources = [TopicPartition(place.topics.events, number) for number in (home, other)]
    async with AIOKafkaConsumer(bootstrap_servers=place.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign(sources)
        for each in sources:
            consumer.seek(each, 0)
        await until(lambda: len(consumer._fetcher._records), lambda fetched: fetched == 2)
        # The order in which they are drained is that of their arrival.
        consumer._fetcher._records.move_to_end(sources[1])
        read: list[int] = []
        while await consumer.position(sources[1]) < 1 or await consumer.position(sources[0]) < 5:
            reading = await read_batches(consumer, timeout_ms=200)
            read += [record.offset for record in reading.batches.get(sources[0], [])]
        assert read == [0, 1, 2, 3, 4]


@pytest.mark.seam
async def test_a_newer_version_stalls_its_stream_alone_until_a_newer_release_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = neighbour("flights", same=True)
    settings = place.settings("flights", other)
    newer = "sluicegate.checkpoint.completed.v9"
    async with place.job() as job, place.job(other) as beside:
        async with running(settings):
            await job.register()
            await beside.register()
            await job.run_batch([1])
            await job.committed([1])
            event = await job.written(job.write_files([2]))
            body = CheckpointCompleted(events=(event,), predecessor=job.previous, source_digest="two")
            await put_raw(job, body.model_dump_json().encode(), headers_of(job, newer, checkpoint=1))
            job.previous, job.batch = Position(incarnation="q1", checkpoint=1, digest="two"), 2
            await job.run_batch([3])
            problem = (await until(lambda: stalls(job)))[0]
            assert problem.code is Code.RECORD_UNREADABLE
            await beside.run_batch([101])
            await beside.committed([1, 101])
        async with running(settings) as again:
            await until(lambda: stalled(again), lambda code: code == Code.RECORD_UNREADABLE)
            await beside.run_batch([102])
            await beside.committed([1, 101, 102])
        known = EVENT_SHAPES[wire_type(EventType.CHECKPOINT_COMPLETED)]
        monkeypatch.setitem(EVENT_SHAPES, newer.encode(), known)
        async with running(settings):
            await job.committed([1, 2, 3, 101, 102])
        assert await letters(job) == []
