"""Records of listeners for `stream adopt`: those of the former stream continue, missing ones are named.

The outcomes on the commits topic have the name of their stream, so a listener never gets those of the former
name under the new one. It must have handled them before.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from sluicegate.cli.errors import UserError
from sluicegate.cli.kafka import partition_count
from sluicegate.coordinator.core.state_record import listener_key
from sluicegate.coordinator.listeners.records import ListenerRecord, encode, furthest, read_held
from sluicegate.coordinator.observe.messages import iso_time
from sluicegate.coordinator.settings.model import ListenerSettings, Settings

_OWNER: Final = "adopted"
"""Owner of a continued record, so that a repeated command replaces it."""


class Listeners(NamedTuple):
    """Listeners of an adopted stream."""

    continued: Mapping[str, ListenerRecord]
    """Records that the former stream has, by listener, for the stream."""
    without: tuple[str, ...]
    """Listeners that mark partitions, and that have no record to continue with."""
    former: str | None = None
    """Former name of the stream; None: it has kept its name."""
    left: tuple[str, ...] = ()
    """Listeners of the former stream whose records do not continue."""
    ahead: tuple[str, ...] = ()
    """Keys of records after the newest commit in the table, whose numbers are used again."""

    def messages(self) -> dict[str, bytes | None]:
        """Return the records to write by key; None: to delete."""
        return dict.fromkeys(self.ahead) | {
            listener_key(each.stream, name, each.owner): encode(each) for name, each in self.continued.items()
        }

    def lines(self, watermark: int | None) -> list[str]:
        """Return the sentences about them; `watermark` is that of the newest commit."""
        lines = [
            f"listener {name} continues with its record"
            + (f", after decision {each.decision}" if each.decision is not None else "")
            for name, each in sorted(self.continued.items())
        ]
        return lines + [f"WARNING: {self._without(name, watermark)}" for name in self.without]

    def _without(self, name: str, watermark: int | None) -> str:
        """Return what the lack of a record means for the marks of a listener."""
        known = iso_time(watermark)
        some = f"the partitions that end at {known} (less its delay) or later" if known else "all partitions"
        end = (
            f"Of {some}, those that get no more files are never marked. Mark them by hand when the watermark "
            "of the stream has passed their end: see docs/moving.md, Marks"
        )
        if self.former is None:
            lost = "is lost, with the partitions that waited for their mark"
            return f"the record of listener {name} {lost}. {end}"
        has = f"has {', '.join(self.left)}" if self.left else "has no other one"
        return (
            f"the former stream {self.former} has no record of a listener {name} of this type; it {has}. A "
            f"listener that shall continue keeps its name and type. So {name} begins again. {end}"
        )


async def read_listeners(settings: Settings, stream: str, former: str, decision: int) -> Listeners:
    """Return the listeners of a stream that is adopted after a decision.

    Raises UserError if a listener has not handled the decisions of the former name; KafkaError, TimeoutError.
    """
    wanted = settings.streams[stream].listeners
    if not wanted:
        return Listeners({}, ())
    count = await partition_count(settings, settings.kafka.topic_names().state)
    held = await read_held(settings.kafka, count, {stream, former})
    if former == stream:
        marking = (name for name, own in wanted.items() if own.type == "mark-done")
        without = tuple(name for name in marking if (stream, name) not in held)
        own = {name: each for (of, name), each in held.items() if of == stream}
        ahead = {
            name: found
            for name, each in own.items()
            if (found := furthest(each.records)) is not None and (found.decision or 0) > decision
        }
        keys = tuple(key for name in ahead for key, _ in own[name].keys)
        again = {name: _continued(each, stream, decision) for name, each in ahead.items()}
        return Listeners(again, without, ahead=keys)
    there = {
        name: found
        for (of, name), each in held.items()
        if of == former and (found := furthest(each.records)) is not None
    }
    going = {name: each for name, each in there.items() if name in wanted and wanted[name].type == each.type}
    _refuse_behind(stream, former, {name: (each, wanted[name]) for name, each in going.items()}, decision)
    return Listeners(
        {name: _continued(each, stream, decision) for name, each in going.items()},
        tuple(
            name
            for name, own in wanted.items()
            if own.type == "mark-done" and name not in going and (stream, name) not in held
        ),
        former,
        tuple(sorted(there.keys() - going.keys())),
    )


def _continued(found: ListenerRecord, stream: str, decision: int) -> ListenerRecord:
    """Return a record of the former stream for the new one."""
    # The new name uses the numbers of reverted decisions after the newest commit again.
    ahead = found.decision is not None and found.decision > decision
    more = {"decision": decision, "seen": ()} if ahead else {}
    new = {"stream": stream, "owner": _OWNER, "step": found.step + 1, "offset": 0}
    return found.model_copy(update={**new, **more})


def _refuse_behind(
    stream: str, former: str, going: Mapping[str, tuple[ListenerRecord, ListenerSettings]], decision: int
) -> None:
    """Refuse listeners that have not handled the newest decision in the table. Raises UserError."""
    behind = {
        name: each.decision
        for name, (each, own) in sorted(going.items())
        if max(each.decision or 0, own.skip_through) < decision
    }
    if not behind:
        return
    said = ", ".join(
        f"{name} (handled {'decision ' + str(at) if at else 'nothing'})" for name, at in behind.items()
    )
    raise UserError(
        f"listeners are behind decision {decision}, the newest one in the table: {said}. Outcomes of "
        f"{former} do not reach them under the name {stream}, so nothing is written. Start a coordinator "
        f"that has the stream {former} with these listeners (or put them back into its settings, and send "
        f"it SIGHUP), and wait until no listener is behind in: sluicegate status --stream {former}. Then "
        f"remove the stream {former} again, and repeat. If a listener shall not continue, remove it from "
        f"[streams.{stream}.listeners]. If it cannot catch up, do by hand what it would have done, and set "
        f"skip_through = {decision} in its settings there"
    )
