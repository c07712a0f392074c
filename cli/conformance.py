"""`sluicegate conformance`: hold the events of a foreign writer against the contract for writers."""

import json
from collections.abc import AsyncIterator
from itertools import chain

import click
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.kafka import partition_count
from sluicegate.cli.options import config_option, json_option, region_option, stream_option
from sluicegate.coordinator.replay.conformance import Raw, Trial, Violation, counts
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.dead_letters import Letter, read_letter
from sluicegate.kafka.clients import started
from sluicegate.kafka.reading import read_batches

_POLL_MS = 500


@click.command()
@config_option
@stream_option
@region_option("Region of the writer.")
@json_option
@click.pass_context
def conformance(context: click.Context, settings: Settings, stream: str, region: str, as_json: bool) -> None:
    """Say what a writer of another program does wrong, by the events of its region in the log.

    Run a coordinator, let the writer do some checkpoints, and wait for the commits. The command reads the
    topics and changes nothing. Its status is 0 if a whole trial was seen and nothing is wrong, else 1.
    """
    trial = run_async(settings, read_trial(settings, stream, region))
    violations = trial.finish()
    seen = dict(sorted(counts(trial).items()))
    if as_json:
        listed = [{"rule": each.rule, "detail": each.detail} for each in violations]
        click.echo(
            json.dumps({"stream": stream, "region": region, "seen": seen, "violations": listed}, indent=2)
        )
    else:
        _print(seen, violations)
    context.exit(1 if violations else 0)


def _print(seen: dict[str, int], violations: list[Violation]) -> None:
    click.echo("seen: " + (", ".join(f"{count} {kind}" for kind, count in seen.items()) or "nothing"))
    for each in violations:
        click.echo(f"{each.rule}: {each.detail}")
    click.echo(f"{len(violations)} violations" if violations else "the writer keeps the contract")


async def read_trial(settings: Settings, stream: str, region: str) -> Trial:
    """Read all topics to their ends. Raises KafkaError, UserError."""
    names = settings.kafka.topic_names()
    trial = Trial(stream, region, await partition_count(settings, names.events))
    async for record, readable in _records(settings, names.events):
        trial.read(_raw(record), readable=readable)
    async for record, _ in _records(settings, names.commits):
        trial.read_feed(_raw(record))
    async for record, _ in _records(settings, names.dead_letters):
        found = read_letter(record)
        if isinstance(found, tuple) and isinstance(found[1], Letter):
            trial.read_letter(found[1])
    if not trial.events and not trial.violations:
        raise UserError(
            f"{names.events} has no event of the region {region} of the stream {stream}. Let the writer "
            "publish first, or correct --stream and --region"
        )
    return trial


def _raw(record: ConsumerRecord) -> Raw:
    place = (record.partition, record.offset, record.timestamp)
    return Raw(*place, record.key, record.headers, record.value)


async def _records(settings: Settings, topic: str) -> AsyncIterator[tuple[ConsumerRecord, bool]]:
    """Yield each record of a topic, and whether clients can decode it. Raises KafkaError."""
    options = settings.kafka.client_options()
    consumer = AIOKafkaConsumer(**options, enable_auto_commit=False, isolation_level="read_committed")
    async with started(consumer):
        count = await partition_count(settings, topic)
        places = [TopicPartition(topic, number) for number in range(count)]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        begins = await consumer.beginning_offsets(places)
        for place in places:
            consumer.seek(place, begins[place])
        while any([await consumer.position(place) < ends[place] for place in places]):
            reading = await read_batches(consumer, timeout_ms=_POLL_MS)
            for record in chain.from_iterable(reading.batches.values()):
                yield record, True
            for record in reading.unreadable:
                yield record, False
