"""Stalls that are told, compared with those that there are: none is invented, none is forgotten."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sluicegate.events.models import CheckpointCompleted, FilesWritten, StreamStalled
from sluicegate.simulator.node import Node
from sluicegate.simulator.reading import Reading
from sluicegate.simulator.violation import Violation
from sluicegate.simulator.world import Entry, World

_CAUSES: Final = {
    "a newer release is needed": ("newer record",),
    "an operator paused": ("pause",),
    "its events stand in another partition": ("stall in the log",),
    "the table is refused for a while": ("table out of scope",),
    "the table refuses decision": ("refused: Publish",),
    "the table was replaced": ("table replaced",),
    "it cannot be proven": ("table rolled back", "proof of absence expired"),
    "in the table with other content": ("foreign commit as our user", "another deployment"),
    "of this stream, ": ("another deployment", "foreign commit as our user"),
    "times in": (
        "away: ",
        "lost append: ",
        "unheard append: ",
        "view lost: ",
        "conflict: ",
        "unknown, ",
        "foreign commit",
    ),
}
"""What a stall of a whole stream says, and which faults it may come from."""


@dataclass
class Faulting:
    """What stalls regions and the stream by what happened, and what coordinators make of it."""

    world: World
    reading: Reading
    overdue_after: int = 0

    def told(self, body: StreamStalled) -> None:
        """Check that what is told is so."""
        if body.region is None:
            self._check_stream(body.reason)
        elif not self._is_faulty(body.region, body.reason):
            raise Violation("fault", f"{body.region} is told to stall, but does not: {body.reason}")

    def compare(self, nodes: Iterable[Node]) -> None:
        """Check that those who have read all of the log know of the same stalled regions as it says."""
        right = {name for name, account in self.reading.regions.items() if account.fault}
        for node in nodes:
            if node.machine.position < len(self.world.log):
                continue
            there = {name for name, region in node.machine.book.state.regions.items() if region.fault}
            if there != right:
                raise Violation("fault", f"{node.name} lets {sorted(there)} stall, not {sorted(right)}")

    def check_end(self, nodes: Iterable[Node]) -> None:
        """Check that what stalls at rest was told, and that nothing else does."""
        told = {due.body.region for due in self.world.commits if isinstance(due.body, StreamStalled)}
        right = {name for name, account in self.reading.regions.items() if account.fault}
        if silent := right - told:
            raise Violation("fault", f"{sorted(silent)} stall, and nobody was told")
        for node in nodes:
            if node.machine.stall_reason is not None and not right:
                raise Violation("fault", f"{node.name} is at rest, and stalls: {node.machine.stall_reason}")

    def _check_stream(self, reason: str) -> None:
        causes = next((causes for sign, causes in _CAUSES.items() if sign in reason), None)
        if causes is None or not any(name.startswith(causes) for name in self.world.coverage):
            raise Violation("fault", f"the stream is told to stall, but nothing is wrong: {reason}")

    def _is_faulty(self, region: str, reason: str) -> bool:
        if reason == "the files are refused for a while":
            return "files refused: CheckFiles" in self.world.coverage
        if reason.startswith("the name of the file"):
            return "old file" in self.world.coverage
        if "which was never completed" in reason:
            return self._lacks_predecessor(region, reason)
        if "names event" in reason:
            return self._lies_elsewhere(region, reason)
        return any(
            name == region and f"checkpoint {checkpoint}" in reason and sign in reason
            for name, checkpoint, sign in self.reading.faults
        )

    def _lacks_predecessor(self, region: str, reason: str) -> bool:
        """Whether a completion had no predecessor for as long as that may take."""
        for entry in self._completions(region, reason):
            before = entry.body.predecessor if isinstance(entry.body, CheckpointCompleted) else None
            if f"follows {before}," not in reason:
                continue
            place = (region, entry.envelope.lineage, before)
            until = self.world.appended[entry.offset] + self.overdue_after
            return not any(
                isinstance(each.body, CheckpointCompleted)
                and each.envelope[3:6] == place
                and self.world.appended[each.offset] < until
                for each in self.world.log
            )
        return False

    def _lies_elsewhere(self, region: str, reason: str) -> bool:
        """Whether an event that a completion names was sent for something else."""
        for entry in self._completions(region, reason):
            for event in entry.body.events if isinstance(entry.body, CheckpointCompleted) else ():
                if f"names event {event}," in reason:
                    return any(
                        isinstance(each.body, FilesWritten)
                        and each.envelope.id == event
                        and each.envelope[3:6] != entry.envelope[3:6]
                        for each in self.world.log
                    )
        return False

    def _completions(self, region: str, reason: str) -> list[Entry]:
        return [
            entry
            for entry in self.world.log
            if isinstance(entry.body, CheckpointCompleted)
            and entry.envelope.region == region
            and f"checkpoint {entry.envelope.checkpoint} of lineage {entry.envelope.lineage} " in reason
        ]
