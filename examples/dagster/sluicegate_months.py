"""Dagster: a run for each partition that Sluicegate marks as complete, each once.

A sensor reads the commits topic. Its cursor has the next offset of each partition of the topic. Dagster
stores the cursor after the runs, so a crash repeats requests, never loses one. The id of the notification is
the run key, so a repetition starts no second run.

    SLUICEGATE_KAFKA=127.0.0.1:9092 SLUICEGATE_STREAM=flights dagster dev -f sluicegate_months.py

It needs `pip install dagster dagster-webserver confluent-kafka`, not Sluicegate itself. The stream has a
listener of the type `mark-done` with the action `mark-event`; its table has a partition for each month.
"""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

MARK = "sluicegate.partition.done.v5"
FIELDS = ("partition", "start", "decision", "snapshot", "late")
LONGEST = 1_000
"""Characters of a field as JSON. A longer one is left out, so that no tag or run is huge."""
RECORDS = 500
"""Records that one tick reads at most; the next tick continues."""
PATIENCE = 20.0
"""Seconds without an answer of Kafka after which a tick fails. Dagster repeats it."""

months = dg.MonthlyPartitionsDefinition(start_date=os.environ.get("FIRST_MONTH", "2013-01-01"))


class Month(dg.Config):  # type: ignore[misc, unused-ignore]
    """Facts of a month that a run has."""

    partition: str
    snapshot: int | None = None
    late: bool = False


@dg.asset(partitions_def=months)
def monthly_report(context: dg.AssetExecutionContext, config: Month) -> dg.MaterializeResult:
    """Read the month from the table, at the snapshot of the mark or a later one. Here is your work."""
    context.log.info(f"{config.partition} is complete in snapshot {config.snapshot}")
    found = {"partition": config.partition, "snapshot": config.snapshot, "late": config.late}
    return dg.MaterializeResult(metadata=found)


report = dg.define_asset_job("report", selection=[monthly_report], partitions_def=months)


def announcement(message: Message, stream: str) -> dict[str, Any] | None:
    """Return a mark of the stream with its id; None for every other message."""
    headers = dict(message.headers() or ())
    if headers.get("ce_stream") != stream.encode() or headers.get("ce_type") != MARK.encode():
        return None
    body = json.loads(message.value())
    known = {name: body.get(name) for name in FIELDS}
    short = {name: value for name, value in known.items() if len(json.dumps(value)) <= LONGEST}
    return {"id": headers["ce_id"].decode(), **short}


def places(consumer: Consumer, topic: str, cursor: Mapping[str, int] | None) -> dict[int, tuple[int, int]]:
    """Return the next and the end offset of each partition. Without a cursor, the next one is the end."""
    found = consumer.list_topics(topic, timeout=PATIENCE).topics[topic]
    if found.error is not None:
        raise RuntimeError(
            f"{topic} cannot be read: {found.error}. Set SLUICEGATE_PREFIX to that of the coordinators"
        )
    places = {}
    for partition in found.partitions:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE)
        start = end if cursor is None else cursor.get(str(partition), first)
        if not first <= start <= end:
            raise RuntimeError(
                f"{topic}-{partition} has offsets {first} to {end}, and {start} is next: notifications were "
                "deleted. Look which partitions of the table have no run, and reset the cursor of the sensor"
            )
        places[partition] = start, end
    return places


def read(
    bootstrap: str, topic: str, cursor: Mapping[str, int] | None
) -> tuple[Sequence[Message], dict[str, int]]:
    """Return the next messages, and the cursor after them."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",  # offsets are in the cursor
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    try:
        found = places(consumer, topic, cursor)
        after = {str(partition): start for partition, (start, _) in found.items()}
        waiting = {partition for partition, (start, end) in found.items() if start < end}
        consumer.assign([TopicPartition(topic, each, found[each][0]) for each in sorted(waiting)])
        messages: list[Message] = []
        while waiting and len(messages) < RECORDS:
            batch = consumer.consume(RECORDS - len(messages), timeout=PATIENCE)
            if not batch:
                raise RuntimeError(f"{bootstrap} gave nothing for {PATIENCE} s")
            for each in batch:
                error = each.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise RuntimeError(f"{topic} cannot be read: {error}")
                after[str(each.partition())] = each.offset() + (error is None)
                if error is not None:
                    waiting.discard(each.partition())
                else:
                    messages.append(each)
        return messages, after
    finally:
        consumer.close()


def request(mark: Mapping[str, Any]) -> dg.RunRequest:
    """Return the request of a run for a mark. Late data gives another mark, so the month runs again."""
    month = datetime.fromtimestamp(mark["start"] / 1000, UTC).date().replace(day=1)
    config = Month(partition=mark["partition"], snapshot=mark["snapshot"], late=mark["late"])
    return dg.RunRequest(
        run_key=mark["id"],
        partition_key=month.isoformat(),
        run_config=dg.RunConfig(ops={"monthly_report": config}),
        tags={"sluicegate/decision": str(mark["decision"]), "sluicegate/late": str(mark["late"])},
    )


@dg.sensor(job=report, minimum_interval_seconds=15, default_status=dg.DefaultSensorStatus.RUNNING)
def complete_months(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """Request a run for each new mark."""
    stream = os.environ["SLUICEGATE_STREAM"]
    topic = f"{os.environ.get('SLUICEGATE_PREFIX', 'sluicegate')}.commits"
    cursor = json.loads(context.cursor) if context.cursor else None
    messages, after = read(os.environ["SLUICEGATE_KAFKA"], topic, cursor)
    marks = [found for each in messages if (found := announcement(each, stream)) is not None]
    return dg.SensorResult(
        # A mark without a time, or with a name that was left out, is no month.
        run_requests=[
            request(each) for each in marks if each.get("start") is not None and "partition" in each
        ],
        cursor=json.dumps(after, sort_keys=True),
    )


defs = dg.Definitions(assets=[monthly_report], jobs=[report], sensors=[complete_months])
