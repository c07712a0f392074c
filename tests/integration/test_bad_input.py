"""Input that cannot be used: put aside with a reason, and nothing of the rest is lost."""

import os
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from sluicegate.coordinator.stream import unroutable
from sluicegate.events.encoding import encode
from sluicegate.events.envelope import Envelope, Event, EventType
from sluicegate.events.models import Assignment, CheckpointCompleted, RegionOpened, codec
from sluicegate.kafka.fetching import read_batches
from tests.integration.conftest import Place, neighbour
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, add_column, create_table, read_ids
from tests.integration.letters import (
    RawName,
    headers_of,
    home_of,
    letters,
    put_batch,
    put_raw,
    send_letters_again,
    source,
    stalls,
    typed,
)
from tests.integration.orders import sluicegate
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside a known stream"])
async def test_an_unknown_stream_is_told_and_committed_once_it_is_configured(
    place: Place, alone: bool
) -> None:
    other = neighbour("flights", same=not alone)
    async with place.job(other) as job:
        await job.send(EventType.REGION_OPENED, RegionOpened(assignment=Assignment(number=0, regions=("r1",))))
        await job.run_batch([1, 2])
        async with running(place.settings()):
            found = await until(lambda: letters(job), lambda seen: len(seen) >= 3)
            assert all(f"[streams.{other}]" in reason for _, reason in found)
        assert read_ids(place.table) == []
        async with running(place.settings("flights", other)):
            await job.committed([1, 2])
            await job.run_batch([3])
            await job.committed([1, 2, 3])
        assert len(await letters(job)) == len(found)


async def test_the_opening_of_an_unknown_stream_is_refused_once(place: Place) -> None:
    other = neighbour("flights", same=True)
    async with place.job(other) as job:
        async with running(place.settings()):
            answer = await job.register()
            assert not answer.accepted
            assert f"[streams.{other}]" in answer.reason
            await until(lambda: letters(job))
        async with running(place.settings()), place.job() as known:
            # Behind the letter of the first opening; it is not answered again.
            assert (await known.register()).accepted
            assert not (await job.register()).accepted
            refusals = [event for event in await job.notifications() if event.envelope.stream == other]
            assert len(refusals) == 2
        async with running(place.settings("flights", other)):
            assert (await job.register()).accepted
            await job.run_batch([1])
            await job.committed([1])


async def test_an_opening_that_nobody_waits_for_any_more_is_not_answered(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unroutable, "FRESH", 0.0)
    async with place.job("unknown") as job, running(place.settings()):
        body = RegionOpened(assignment=Assignment(number=0, regions=("r1",)))
        await job.send(EventType.REGION_OPENED, body)
        await until(lambda: letters(job))
        assert await job.notifications() == []


async def test_a_control_event_without_json_is_put_aside_and_the_region_says_what_it_waits_for(
    place: Place,
) -> None:
    async with running(place.settings()), place.job() as job:
        await job.register()
        await job.run_batch([1])
        event = await job.written(job.write_files([2]))
        bad = await put_raw(job, b"{no json", headers_of(job, typed("checkpoint.completed"), checkpoint=1))
        found = await until(lambda: letters(job))
        assert found[0][0] == source(job, bad)
        assert "checkpoint.completed is malformed" in found[0][1]
        reasons = await until(lambda: stalls(job))
        assert f"offset {bad}" in reasons[0]
        assert "checkpoint 1 of lineage q1.0" in reasons[0]
        await job.complete(event)
        await job.committed([1, 2])
        await job.run_batch([3])
        await job.committed([1, 2, 3])
        assert len(await letters(job)) == 1


async def test_the_wait_for_a_completion_is_told_again_after_a_restart(place: Place) -> None:
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            await put_raw(job, b"", headers_of(job, typed("checkpoint.completed"), checkpoint=1))
            await until(lambda: stalls(job))
        async with running(place.settings()) as service:
            stalled = await until(lambda: service.status()["streams"]["flights"]["stalled"])
            assert "cannot be read" in stalled
            await job.run_batch([2])
            await job.committed([1, 2])
            assert service.status()["streams"]["flights"]["stalled"] is None


async def test_an_opening_without_json_is_refused(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        await put_raw(job, b"[]", headers_of(job, typed("region.opened")))
        answers = await until(job.notifications)
        assert "region.opened is malformed" in getattr(answers[0].body, "reason", "")
        assert (await job.register()).accepted


async def test_files_without_json_bar_their_region(place: Place, impatient: None) -> None:
    async with running(place.settings()), place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        headers = headers_of(job, typed("files.written"), checkpoint=1, ce_files="1")
        bad = await put_raw(job, b"no json", headers)
        good = await job.written(job.write_files([2]))
        await job.complete(good, headers["ce_id"].decode())
        reasons = await until(lambda: stalls(job))
        assert "files.written is malformed" in reasons[0]
        found = await until(lambda: letters(job))
        assert [place for place, _ in found] == [source(job, bad)]
        await job.run_batch([3])
        assert read_ids(place.table) == [1]
        assert len(await letters(job)) == 1


async def test_broken_headers_are_put_aside_and_the_stream_goes_on(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        await job.register()
        await job.run_batch([1])
        wrong = headers_of(job, typed("checkpoint.completed"), ce_checkpoint="-7")
        first = await put_raw(job, b"{}", wrong)
        second = await put_raw(job, None, {})
        await job.run_batch([2])
        await job.committed([1, 2])
        told = await until(lambda: letters(job), lambda seen: len(seen) == 2)
        found = dict(told)
        assert "ce_checkpoint has the malformed value" in found[source(job, first)]
        assert "ce_type is missing" in found[source(job, second)]


async def test_a_dead_letter_as_large_as_a_message_may_be_is_delivered(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        job.producer._max_request_size = 2 << 20
        await put_raw(job, b"x" * (1_048_588 - 100), {})
        await put_raw(job, b"small", {})
        assert len(await until(lambda: letters(job), lambda found: len(found) == 2)) == 2


async def test_exactly_the_undecodable_records_are_skipped(place: Place) -> None:
    """Also those in one batch with good ones, in the events and among the state records."""
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
        files = job.write_files([2])
        writer, attempt = job.writers[files.files[0].path]
        envelope = Envelope("good", EventType.FILES_WRITTEN, "flights", "r1", "q1.0", 1, writer, 1, attempt)
        good = encode(Event(envelope, files))
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
            found = await until(lambda: letters(job), lambda found: len(found) >= 4)
            assert [at for at, _ in found] == expected
            assert all("not UTF-8" in reason for _, reason in found)
        async with running(place.settings()):
            await job.run_batch([4])
            await job.committed([1, 2, 3, 4])
        assert len(await letters(job)) == 4


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


async def test_a_message_of_nothing_is_put_aside(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        await job.register()
        nothing = (None, [("ce_stream", b"flights")])
        at = await put_batch(place.bootstrap, place.topics.events, home_of("flights"), [nothing], key=None)
        found = await until(lambda: letters(job))
        assert [place for place, _ in found] == [source(job, at)]
        await job.run_batch([1])
        await job.committed([1])


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


async def test_a_job_of_another_table_is_refused_before_it_writes(place: Place) -> None:
    other = create_table(place.root, "departures")
    async with running(place.settings()) as service, place.job() as job:
        refused = await job.register(table=other)
        assert not refused.accepted
        assert f"file://{other}" in refused.reason
        assert f"file://{place.table}" in refused.reason
        assert "option `table`" in refused.reason
        assert service.status()["streams"]["flights"]["stalled"] is None
        assert (await job.register()).accepted
        await job.run_batch([1])
        await job.committed([1])


async def test_files_outside_the_allowed_locations_wait_for_the_settings(place: Place) -> None:
    elsewhere = {"allowed_locations": ["/somewhere/else"]}
    async with place.job() as job:
        async with running(place.settings(options=elsewhere)):
            await job.register()
            await job.run_batch([1])
            reasons = await until(lambda: stalls(job))
            assert "allowed_locations" in reasons[0]
            assert "/somewhere/else" in reasons[0]
        assert read_ids(place.table) == []
        async with running(place.settings()):
            await job.committed([1])
            await job.run_batch([2])
            await job.committed([1, 2])


async def test_files_of_a_schema_that_is_not_there_yet_are_committed_once_it_is(
    place: Place, impatient: None
) -> None:
    schema = Path(place.table) / "schema" / "schema-1"
    hidden = place.root / "schema-1"
    async with running(place.settings()), place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        add_column(place.table, "remark")
        body = job.write_files([2])
        assert body.schema_id == 1
        os.rename(schema, hidden)
        await job.complete(await job.written(body))
        reasons = await until(lambda: stalls(job))
        assert "schema 1" in reasons[0]
        os.rename(hidden, schema)
        await job.committed([1, 2])


async def test_an_event_on_the_wrong_partition_stalls_its_stream_until_it_is_resumed(place: Place) -> None:
    wrong = (home_of("flights") + 1) % PARTITIONS
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            await job.complete(await job.written(job.write_files([2]), partition=wrong))
            reasons = await until(lambda: stalls(job))
            assert f"the stream's partition is {home_of('flights')}" in reasons[0]
            assert "sluicegate resume --stream flights" in reasons[0]
            await until(lambda: letters(job))
            await send_letters_again(job)
            assert read_ids(place.table) == [1]
            await sluicegate(place, "resume", "--stream", "flights")
            await job.committed([1, 2])
            # One that comes after the order stalls the stream again.
            await job.complete(await job.written(job.write_files([3]), partition=wrong))
            await until(lambda: stalls(job), lambda found: len(found) == 2)
            await until(lambda: letters(job), lambda found: len(found) == 2)
            await send_letters_again(job)
            await sluicegate(place, "resume", "--stream", "flights")
            await job.committed([1, 2, 3])
        async with running(place.settings()) as service:
            await job.run_batch([4])
            await job.committed([1, 2, 3, 4])
            assert service.status()["streams"]["flights"]["stalled"] is None
        assert len(await letters(job)) == 2


async def test_a_newer_version_stalls_its_stream_alone_until_a_newer_release_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = neighbour("flights", same=True)
    settings = place.settings("flights", other)
    async with place.job() as job, place.job(other) as beside:
        async with running(settings):
            await job.register()
            await beside.register()
            await job.run_batch([1])
            await job.committed([1])
            event = await job.written(job.write_files([2]))
            body = CheckpointCompleted(events=(event,), predecessor=0, source_digest="two")
            headers = headers_of(job, "sluicegate.checkpoint.completed.v2", checkpoint=1)
            await put_raw(job, body.model_dump_json().encode(), headers)
            job.previous, job.batch = 1, 2
            await job.run_batch([3])
            reasons = await until(lambda: stalls(job))
            assert "upgrade the coordinator" in reasons[0]
            await beside.run_batch([101])
            await beside.committed([1, 101])
        async with running(settings) as again:
            stalled = await until(lambda: again.status()["streams"]["flights"]["stalled"])
            assert "upgrade the coordinator" in stalled
            await beside.run_batch([102])
            await beside.committed([1, 101, 102])
        newer = codec._TYPES[codec.wire_type(EventType.CHECKPOINT_COMPLETED)]
        monkeypatch.setitem(codec._TYPES, b"sluicegate.checkpoint.completed.v2", newer)
        async with running(settings):
            await job.committed([1, 2, 3, 101, 102])
        assert await letters(job) == []
