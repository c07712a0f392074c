"""The reference page of the states of a region, from the table of transitions.

No rule reads the table. Tests and the simulator check that all changes they see are in it.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from sluicegate.coordinator.core.state import RegionPhase
from sluicegate.events.envelope import EventType
from tools.docs.markdown import cell

_WAITING, _LIVE, _CLOSED = RegionPhase.WAITING, RegionPhase.LIVE, RegionPhase.CLOSED
_REMOVED, _LEFT = RegionPhase.REMOVED, RegionPhase.LEFT


class Transition(NamedTuple):
    """Changes from any of the sources to any of the targets; None: the region is not in the log's state."""

    sources: tuple[RegionPhase | None, ...]
    event: EventType
    targets: tuple[RegionPhase | None, ...]
    cause: str


REGION: Final = (
    Transition(
        (None, _WAITING), EventType.REGION_REGISTERED, (_LIVE,), "its first incarnation, or a new one"
    ),
    Transition((_CLOSED,), EventType.REGION_REGISTERED, (_LIVE,), "a closed region reopens"),
    Transition(
        (_CLOSED, _REMOVED, _LEFT), EventType.REGION_REGISTERED, (_LIVE,), "first in a new assignment"
    ),
    Transition(
        (_CLOSED, _REMOVED, _LEFT), EventType.REGION_REGISTERED, (_WAITING,), "a new assignment lists it"
    ),
    Transition((_CLOSED, _REMOVED), EventType.REGION_REGISTERED, (_LEFT,), "a new assignment lacks it"),
    Transition((_LIVE,), EventType.REGION_CLOSED, (_CLOSED,), "its driver ends it"),
    Transition((_CLOSED,), EventType.CHECKPOINT_COMPLETED, (_LIVE,), "work has overtaken the closing"),
    Transition(
        (None, _WAITING, _LIVE, _CLOSED), EventType.STREAM_COMMAND, (_REMOVED,), "remove, discard or close"
    ),
    Transition(
        (_WAITING, _LIVE, _CLOSED, _REMOVED, _LEFT),
        EventType.STREAM_COMMAND,
        (_CLOSED, _REMOVED, _LEFT, None),
        "withdraw: as before the assignment, when every region had ended",
    ),
    Transition(
        (None,),
        EventType.CUT_ABANDONED,
        (_WAITING,),
        "another coordinator counts it before it has registered",
    ),
    Transition((_LIVE, _CLOSED), EventType.CUT_REVERTED, (_WAITING,), "a revert ends its incarnation"),
)


def changes(before: RegionPhase | None, event: EventType, after: RegionPhase | None) -> list[Transition]:
    """Return the rows with this change; none if no event of this type may make it."""
    return [
        each
        for each in REGION
        if before != after and before in each.sources and event is each.event and after in each.targets
    ]


HEADING: Final = """\
# States of a region

A region is *waiting* for its registration, *live*, *closed* by its driver, *removed* by an operator, or has
*left* the assignment. Tests and the simulator check that every change of a phase is in this table.

| from | event | to | cause |
|---|---|---|---|
"""


def render() -> str:
    """Return the page."""
    return HEADING + "".join(
        f"| {_phases(each.sources)} | `{each.event}` | {_phases(each.targets)} | {cell(each.cause)} |\n"
        for each in REGION
    )


def _phases(phases: Iterable[RegionPhase | None]) -> str:
    return ", ".join("absent" if each is None else each.value for each in phases)
