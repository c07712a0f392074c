"""Records of listeners for `stream adopt`: those of the former stream continue, missing ones are named."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from sluicegate.cli.kafka import partition_count
from sluicegate.coordinator.listeners.record import ListenerRecord, encode, furthest
from sluicegate.coordinator.listeners.records import read_held
from sluicegate.coordinator.retention import listener_key
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.telemetry.wording import iso_time

_OWNER: Final = "adopted"
"""Owner of a continued record, so that a repeated command replaces it."""


class Listeners(NamedTuple):
    """Listeners of an adopted stream."""

    continued: Mapping[str, ListenerRecord]
    """Records that the former stream has, by listener, for the stream."""
    without: tuple[str, ...]
    """Listeners that mark partitions, and that have no record anywhere."""

    def messages(self) -> dict[str, bytes]:
        """Return the records to write, by key."""
        return {
            listener_key(each.stream, name, each.owner): encode(each) for name, each in self.continued.items()
        }

    def lines(self, watermark: int | None) -> list[str]:
        """Return the sentences about them; `watermark` is that of the newest commit."""
        lines = [
            f"listener {name} continues with its record"
            + (f", after decision {each.decision}" if each.decision is not None else "")
            for name, each in sorted(self.continued.items())
        ]
        known = iso_time(watermark)
        some = f"the partitions that end at {known} (less its delay) or later" if known else "all partitions"
        lines += [
            f"WARNING: the record of listener {name} is lost, with the partitions that waited for their "
            f"mark. Of {some}, those that get no more files are never marked. Mark them by "
            "hand when the watermark "
            "of the stream has passed their end: see docs/moving.md, Marks"
            for name in self.without
        ]
        return lines


async def read_listeners(settings: Settings, stream: str, former: str) -> Listeners:
    """Return the listeners of an adopted stream. Raises KafkaError, UserError, TimeoutError."""
    wanted = settings.streams[stream].listeners
    if not wanted:
        return Listeners({}, ())
    count = await partition_count(settings, settings.kafka.topic_names().state)
    held = await read_held(settings.kafka, count, {stream, former})
    continued: dict[str, ListenerRecord] = {}
    without: list[str] = []
    for name, own in wanted.items():
        there = (stream, name) in held
        found = furthest(held[former, name].records) if (former, name) in held else None
        if former != stream and found is not None and found.type == own.type:
            continued[name] = found.model_copy(
                update={"stream": stream, "owner": _OWNER, "step": found.step + 1, "offset": 0}
            )
        elif not there and own.type == "mark-done":
            without.append(name)
    return Listeners(continued, tuple(without))
