"""Input that cannot be used becomes a dead letter with a code, and nothing else is lost."""

import json
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType, with_counts
from sluicegate.events.problems import Code
from sluicegate.kafka.reading import read_batches
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, Job, read_ids
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
from tests.integration.orders import invoke, invoke_here
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


@pytest.mark.seam
async def test_files_without_json_exclude_their_region(place: Place, impatient: None) -> None:
    async with running(place.settings()), place.job() as job:
        await job.begin_with_a_commit()
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
        await job.commit([2], [1, 2])
        found = await until(lambda: codes(job), lambda seen: len(seen) == 2)
        assert dict(found) == {
            source(job, first): Code.MALFORMED_ATTRIBUTE,
            source(job, second): Code.NO_EVENT,
        }


async def test_a_proof_of_the_topics_is_passed_over_by_every_reader(place: Place) -> None:
    """By running coordinators, new ones, and the commands that read the log."""

    async def prove() -> None:
        shown = await invoke(place, "check", "--table", "flights")
        assert (shown.exit_code, shown.stdout.count("sluicegate.probe is at")) == (0, 4), shown.output

    async with place.job() as job:
        async with running(place.settings()):
            await job.begin_with_a_commit()
            await prove()
            await job.commit([2], [1, 2])
            await prove()
        async with running(place.settings()):
            await job.commit([3], [1, 2, 3])
        listed = await invoke_here(place, "dead-letters", "list", "--json")
        assert (listed.exit_code, json.loads(listed.stdout)["letters"]) == (0, []), listed.output
        for command in ("replay verify", "history", "status"):
            shown = await invoke_here(place, *command.split(), "--stream", "flights")
            assert (shown.exit_code, "probe" in shown.output) == (0, False), shown.output
        shown = await invoke_here(place, "conformance", "--stream", "flights", "--region", "r1")
        # It misses heartbeats, which this job does not send.
        assert "envelope" not in shown.output


@pytest.mark.seam
async def test_exactly_the_undecodable_records_are_skipped(place: Place) -> None:
    """Also those in one batch with good ones, in the events and among the state records."""
    async with place.job() as job:
        async with running(place.settings()):
            await job.begin_with_a_commit()
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
            await job.commit([3], [1, 2, 3])
            found = await until(lambda: codes(job), lambda found: len(found) >= 4)
            assert found == [(at, Code.UNDECODABLE) for at in expected]
        async with running(place.settings()):
            await job.commit([4], [1, 2, 3, 4])
        assert len(await letters(job)) == 4


async def test_marks_of_foreign_transactions_hold_nothing_up(place: Place) -> None:
    """They take an offset and are no record: at the end of the log nothing would come behind them."""
    async with place.job() as job:
        async with running(place.settings()):
            await job.begin_with_a_commit()
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


LETTERS = "dead-letters"


async def listed(place: Place, *more: str) -> list[dict[str, Any]]:
    """What `list` shows."""
    said = await invoke_here(place, LETTERS, "list", "--json", *more)
    assert said.exit_code == 0, said.output
    found: list[dict[str, Any]] = json.loads(said.stdout)["letters"]
    return found


async def put_aside(job: Job, count: int) -> None:
    """Wait until so many letters are there."""
    await until(lambda: letters(job), lambda found: len(found) >= count)


async def test_letters_are_listed_shown_and_dropped(place: Place) -> None:
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            headers = headers_of(job, typed("checkpoint.completed"), checkpoint=0, **{"x-token": "hush"})
            offset = await put_raw(job, b'{"api_key": "also hush", "x": "\x1b[2J"', headers)
            await put_raw(job, b"{}", {"ce_type": b"unheard.of"})
            await put_aside(job, 2)
        found = await listed(place)
        assert [each["stream"] for each in found] == ["flights", None]
        stood = found[0]["source"]
        assert (stood["topic"], stood["partition"], stood["offset"]) == (
            place.topics.events,
            home_of("flights"),
            offset,
        )
        assert [each["code"] for each in found] == ["malformed-body", "spec-version"]
        assert [each["stream"] for each in await listed(place, "--stream", "flights")] == ["flights"]
        number = str(found[0]["offset"])
        shown = (await invoke_here(place, LETTERS, "show", "--offset", number)).stdout
        assert "The message is not used: its body is malformed" in shown
        assert "ce_incarnation: q1" in shown
        assert "x-token: [secret]" in shown
        assert '"api_key": "[secret]"' in shown
        assert "hush" not in shown
        assert "\\x1b[2J" in shown
        assert "\x1b" not in shown
        refused = await invoke_here(place, LETTERS, "retry", "--offset", number)
        assert (refused.exit_code, "cannot read it either" in refused.stderr) == (2, True)
        assert (await invoke_here(place, LETTERS, "drop", "--offset", number)).exit_code == 0
        assert [each["offset"] for each in await listed(place)] == [found[1]["offset"]]
        assert [each["dealt_with"] for each in await listed(place, "--all")] == ["dropped", None]
        missing = await invoke_here(place, LETTERS, "drop", "--offset", "99")
        assert (missing.exit_code, "no letter at offset 99" in missing.stderr) == (2, True)


async def test_a_letter_that_is_sent_again_counts_once(place: Place) -> None:
    """It stood on the wrong partition, for which the stream stalls."""
    async with place.job() as job:
        async with running(place.settings()) as service:
            await job.begin_with_a_commit()
            wrong = (home_of("flights") + 1) % PARTITIONS
            event = await job.written(job.write_files([2]), partition=wrong)
            await job.complete(event)
            await put_aside(job, 1)
            await until(lambda: stalled(service), lambda code: code == Code.EVENTS_MISSING)
        (letter,) = await listed(place)
        sent = await invoke_here(place, LETTERS, "retry", "--offset", str(letter["offset"]))
        assert sent.exit_code == 0, sent.output
        assert "it has an effect, by the rules of the log" in sent.stdout
        assert "not known from here: whether the settings of the coordinators still have" in sent.stdout
        assert "1 of its events have not arrived" in sent.stdout
        assert "no coordinator runs" in sent.stdout
        assert await listed(place) == []
        again = await invoke_here(place, LETTERS, "retry", "--offset", str(letter["offset"]), "--json")
        told = json.loads(again.stdout)
        assert told["counts"] is False
        assert "the same one was applied before" in told["no_effect"]
        async with running(place.settings()):
            await job.committed([1, 2])
        late = await invoke_here(place, LETTERS, "retry", "--offset", str(letter["offset"]))
        assert "The event has no effect: its checkpoint was decided before" in late.stdout
