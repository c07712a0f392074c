"""Faults of effects, and the names of effects by which they are chosen."""

from collections.abc import Iterator
from typing import Final

from sluicegate.coordinator.core.effects import (
    Announce,
    Append,
    Ask,
    CheckFiles,
    Effect,
    InspectTable,
    Publish,
    WriteRecord,
    WriteView,
)
from tests.simulator.dice import Dice

OF_TABLE: Final = (InspectTable, Ask, CheckFiles, Publish)
TO_TOPICS: Final = (Append, WriteRecord, Announce)
FATES: Final[dict[str, tuple[type[Effect], ...]]] = {
    "lost append": TO_TOPICS,
    "unheard append": TO_TOPICS,
    "away": OF_TABLE,
    "conflict": (Publish,),
    "unknown, invisible": (Publish,),
    "unknown, visible": (Publish,),
    "refused": (Publish,),
    "files refused": (CheckFiles,),
    "zombie in between": (Ask,),
    "view lost": (WriteView,),
}
"""Faults of effects, with the effects that can meet them."""
KINDS: Final = (
    "InspectTable",
    "FetchEnd",
    "CheckFiles",
    "stream.policy",
    "cut.decided",
    "cut.committed",
    "cut.reverted",
    "cut.abandoned",
    "region.heartbeat",
    "Ask",
    "Publish",
    "WriteRecord",
    "Announce",
    "ReleaseOffsets",
)
"""Effects by name; an append by the type of its event."""
RARE: Final = {
    "cut.abandoned": 12,
    "cut.reverted": 12,
    "region.heartbeat": 12,
    "stream.policy": 5,
    "cut.decided": 8,
    "cut.committed": 8,
    "CheckFiles": 5,
    "Publish": 4,
    "InspectTable": 2,
    "FetchEnd": 2,
    "WriteRecord": 2,
    "Announce": 2,
    "ReleaseOffsets": 2,
    "Ask": 2,
}


def name_of(effect: Effect) -> str:
    """Return the name of an effect as in KINDS."""
    return str(effect.type) if isinstance(effect, Append) else type(effect).__name__


def kinds_of(fate: str) -> Iterator[str]:
    """Yield the names of the effects that can meet a fault."""
    struck = {each.__name__ for each in FATES[fate]}
    yield from (name for name in (*KINDS, "WriteView") if ("Append" if "." in name else name) in struck)


def pick(dice: Dice, names: list[str], focus: tuple[str, ...]) -> str:
    """Return one of the names: mostly one in focus; rare effects are waited for more often."""
    if (chosen := [name for name in names if name in focus]) and dice.chance(0.7):
        return dice.pick(chosen)
    return dice.pick([name for name in names for _ in range(RARE.get(name, 1))])
