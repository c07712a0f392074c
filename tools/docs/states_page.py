"""The reference page of the states of a region, from the table of transitions."""

from collections.abc import Iterable
from typing import Final

from sluicegate.coordinator.core.state import REGION, RegionPhase
from tools.docs.markdown import cell

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
