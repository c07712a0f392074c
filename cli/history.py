"""`sluicegate history`: what became of the newest cuts of a stream."""

import json
from typing import Any, Final, NamedTuple

import click
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from sluicegate.cli.errors import run_async
from sluicegate.cli.options import config_option, json_option, require_stream, stream_option
from sluicegate.coordinator.observe.messages import iso_time, listed
from sluicegate.coordinator.replay.log import partitions_of, read_range
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.codec import Flaw
from sluicegate.events.envelope import partition_of
from sluicegate.events.models import CommitSummary, CutAbandoned, CutReverted
from sluicegate.events.notifications import Committed, read_notification
from sluicegate.kafka.clients import started

# The newest outcomes of a stream, as its commits topic has them.

STEP: Final = 1_000
"""Messages that are read first, from the end of the topic. Each later step backwards is twice as long."""


class Outcome(NamedTuple):
    """Outcome of one attempt to commit."""

    time: int
    """Time of its first announcement, in milliseconds since the Unix epoch."""
    body: Committed | CutAbandoned | CutReverted


async def read_outcomes(settings: Settings, stream: str, most: int) -> list[Outcome]:
    """Return up to `most` of the newest outcomes of a stream, the oldest first, each once.

    Older ones than the retention of the commits topic are gone. Raises ReplayRefused if there is no such
    topic, KafkaError, TimeoutError.
    """
    topic = settings.kafka.topic_names().commits
    consumer = AIOKafkaConsumer(
        enable_auto_commit=False, auto_offset_reset="none", **settings.kafka.client_options()
    )
    async with started(consumer):
        source = TopicPartition(topic, partition_of(stream, len(await partitions_of(consumer, topic))))
        begin = (await consumer.beginning_offsets([source]))[source]
        end = (await consumer.end_offsets([source]))[source]
        found: dict[str, Outcome] = {}
        step, patience = STEP, settings.kafka.request_timeout * 4
        while end > begin and len(found) < most:
            start = max(begin, end - step)
            earlier: dict[str, Outcome] = {}
            async for batch in read_range(consumer, source, start, end, patience):
                _take(batch, stream, earlier)
            # A restart repeats what it announced last: the first time counts.
            found = {**earlier, **{name: each for name, each in found.items() if name not in earlier}}
            end, step = start, 2 * step
    return list(found.values())[-most:]


def _take(records: list[ConsumerRecord], stream: str, found: dict[str, Outcome]) -> None:
    for record in records:
        read = read_notification(record.headers, record.value)
        if isinstance(read, Flaw) or read.stream != stream:
            continue
        if isinstance(read.body, Committed | CutAbandoned | CutReverted):
            found.setdefault(read.id, Outcome(record.timestamp, read.body))


@click.command()
@config_option
@stream_option
@click.option(
    "--last",
    default=20,
    show_default=True,
    type=click.IntRange(min=1, max=100_000),
    help="How many outcomes to show.",
)
@json_option
def history(settings: Settings, stream: str, last: int, as_json: bool) -> None:
    """Show the newest outcomes of a stream, the oldest first.

    An outcome is a commit, full or partial, a decision that was reverted, or an attempt that was abandoned.
    They are read from the commits topic, which keeps them for its retention.
    """
    require_stream(settings, stream)
    found = run_async(settings, read_outcomes(settings, stream, last))
    if as_json:
        click.echo(json.dumps({"stream": stream, "outcomes": [_values(each) for each in found]}, indent=2))
        return
    for each in found:
        click.echo(_line(each))
    if not found:
        click.echo(f"the commits topic has no outcome of stream {stream}")


def _kind(outcome: Outcome) -> str:
    match outcome.body:
        case Committed(fallbacks=fallbacks, summary=summary):
            forced = summary is not None and summary.forced
            return "partial" if fallbacks else "forced" if forced else "full"
        case CutReverted():
            return "reverted"
        case CutAbandoned():
            return "abandoned"


def _values(outcome: Outcome) -> dict[str, Any]:
    return {"outcome": _kind(outcome), "time": outcome.time, **outcome.body.model_dump(mode="json")}


def _line(outcome: Outcome) -> str:
    body = outcome.body
    text = f"{iso_time(outcome.time)}  decision {body.decision}  {_kind(outcome)}"
    if isinstance(body, CutAbandoned):
        why = (
            "all regions had to move" if body.kind == "forced" else "too many regions would have fallen back"
        )
        return f"{text}: {why}; behind: {listed(body.regions)}"
    if body.snapshot is not None:
        text += f", snapshot {body.snapshot.snapshot}"
    if isinstance(body, CutReverted):
        return text
    text += f", {_count(body.files, 'file')}{_content(body.summary)}"
    if body.watermark is not None:
        text += f", watermark {iso_time(body.watermark)}"
    return text + (f"; fell back: {listed(tuple(sorted(body.fallbacks)))}" if body.fallbacks else "")


def _content(summary: CommitSummary | None) -> str:
    """Format what a commit added, as far as its coordinator has seen it."""
    if summary is None:
        return ""
    text = f", {_count(summary.rows, 'row')}" if summary.rows is not None else ""
    text += f", {_count(summary.bytes, 'byte')}" if summary.bytes is not None else ""
    text += f" in {_count(summary.partitions, 'partition')}" if summary.partitions is not None else ""
    if summary.sealed is None:
        return text
    # The clocks of the broker and of the coordinator may differ.
    return f"{text}, visible {max(0, summary.visible - summary.sealed)} ms after its last event"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
