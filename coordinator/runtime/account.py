"""HTTP status of a coordinator: the state of its streams, and the reasons why it is not ready."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sluicegate.coordinator.settings.kafka import KafkaSettings
from sluicegate.coordinator.stream.partition import PartitionRunner
from sluicegate.coordinator.stream.runner import StreamRunner
from sluicegate.coordinator.telemetry.messages import format_problem
from sluicegate.coordinator.telemetry.overview import overview
from sluicegate.events.problems import Code

PATIENCE: Final = 3.0
"""Seconds that an effect may fail before the service is unready: conflicts and new leaders are short."""


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
            failing = stream.telemetry.failing(PATIENCE)
            for each in stream.machine.conditions():
                retried = each.problem.code is Code.RETRYING
                if retried and (each.kind == "stall" or each.problem.names[0] in failing):
                    yield format_problem(each.problem, name)


def absent(topic: str) -> str:
    """Format the message for a missing events topic: without its metadata the group assigns no partitions."""
    return (
        f"the topic {topic} does not exist any more, so nothing is read. Create it again with "
        "`sluicegate topics create`; `sluicegate status` then shows the way out of each stream"
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
    return {**overview(stream.machine.record(), now), "ready": stream.machine.ready}
