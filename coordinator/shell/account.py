"""What a coordinator says of itself over HTTP: where its streams stand, and why it does not do its work."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sluicegate.coordinator.core.gauges import waited_for
from sluicegate.coordinator.core.retries import OPTIONAL
from sluicegate.coordinator.shell.partition import PartitionRunner
from sluicegate.coordinator.shell.stream import StreamRunner

PATIENCE: Final = 3_000
"""Milliseconds that an effect may fail before that counts: a conflict, or a new leader, is no outage."""


def hindrances(runners: Mapping[int, PartitionRunner]) -> Iterator[str]:
    """Why partitions and their streams do not go on; a stall is told elsewhere."""
    for number, runner in runners.items():
        if not runner.started:
            why = f" ({runner.trouble})" if runner.trouble else ""
            yield f"partition {number}: its state records are not read yet{why}"
        if other := runner.rivals.seen:
            yield f"partition {number}: the group {other} decides for its streams, too"
        for name, stream in runner.streams.items():
            for each in stream.machine.retries:
                lasts = each.stall is not None or each.lasted >= PATIENCE
                if lasts and each.effect not in OPTIONAL:
                    yield f"stream {name}: {each.effect} fails and is tried again: {each.reason}"


def account(epoch: int, runners: Mapping[int, PartitionRunner]) -> dict[str, Any]:
    """What this member owns, and where it stands."""
    return {
        "epoch": epoch,
        "partitions": {
            str(number): {"position": runner.position, "low_water": runner.low_water()}
            for number, runner in runners.items()
            if runner.started
        },
        "streams": {
            name: _stream(stream) for runner in runners.values() for name, stream in runner.streams.items()
        },
    }


def _stream(stream: StreamRunner) -> dict[str, Any]:
    machine = stream.machine
    state = machine.book.state
    return {
        "decision": state.committed,
        "cut": {
            region: {"lineage": held.ref.lineage, "checkpoint": held.ref.checkpoint}
            for region, held in state.regions.items()
            if held.ref is not None
        },
        "watermark": state.watermark,
        "ready": machine.ready,
        "stalled": machine.stall_reason,
        "paused": machine.paused,
        "retries": [
            {
                "effect": each.effect,
                "reason": each.reason,
                "failures": each.failures,
                "lasted": each.lasted,
            }
            for each in machine.retries
        ],
        "waits_for": waited_for(machine.book),
    }
