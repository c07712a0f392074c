"""HTTP status of a coordinator: the state of its streams, and the reasons why it is not ready."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sluicegate.coordinator.core.retries import OPTIONAL
from sluicegate.coordinator.settings.kafka import KafkaSettings
from sluicegate.coordinator.stream.partition import PartitionRunner
from sluicegate.coordinator.stream.runner import StreamRunner
from sluicegate.coordinator.telemetry.overview import overview

PATIENCE: Final = 3_000
"""Milliseconds that an effect may fail before the service is unready: conflicts and new leaders are short."""


def hindrances(runners: Mapping[int, PartitionRunner]) -> Iterator[str]:
    """Yield the reasons why partitions and their streams make no progress; stalls are reported elsewhere."""
    for number, runner in runners.items():
        if not runner.started:
            why = f" ({runner.trouble})" if runner.trouble else ""
            yield f"partition {number}: its state records are not read yet{why}"
        for name in runner.changes.joining:
            why = f" ({runner.changes.trouble})" if runner.changes.trouble else ""
            yield f"stream {name}: its log is being read, since the settings were reloaded{why}"
        if other := runner.rivals.seen:
            yield f"partition {number}: the group {other} decides for its streams, too"
        for name, stream in runner.streams.items():
            for each in stream.machine.retries:
                lasts = each.stall is not None or each.lasted >= PATIENCE
                if lasts and each.effect not in OPTIONAL:
                    yield f"stream {name}: {each.effect} fails and is tried again: {each.reason}"


def absent(topic: str) -> str:
    """Format the message for a missing events topic: without its metadata the group assigns no partitions."""
    return (
        f"the topic {topic} does not exist any more, so that nothing is read. Make it again with "
        "`sluicegate topics create`: each stream then says how it goes on"
    )


def account(settings: KafkaSettings, epoch: int, runners: Mapping[int, PartitionRunner]) -> dict[str, Any]:
    """Return the partitions and streams of this member as JSON values, with their state."""
    now = time.time_ns() // 1_000_000
    return {
        "group": settings.group_id,
        "topic_prefix": settings.topic_prefix,
        "epoch": epoch,
        "partitions": {
            str(number): {"position": runner.position, "low_water": runner.low_water()}
            for number, runner in runners.items()
            if runner.started
        },
        "streams": {
            name: {**runner.offsets(), **_stream(stream, now)}
            for runner in runners.values()
            for name, stream in runner.streams.items()
        },
    }


def _stream(stream: StreamRunner, now: int) -> dict[str, Any]:
    machine = stream.machine
    retries = [
        {"effect": each.effect, "reason": each.reason, "failures": each.failures, "lasted": each.lasted}
        for each in machine.retries
    ]
    # The record has only long retries and none of the view, so the status has its own list.
    return {**overview(machine.record(), now), "ready": machine.ready, "retries": retries}
