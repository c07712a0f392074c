"""Defects in the product's code, one at a time: each breaks the invariant that it names."""

from typing import Final

from tests.simulation.defects.checkpoints import CHECKPOINTS
from tests.simulation.defects.clocks import CLOCKS
from tests.simulation.defects.cuts import CUTS
from tests.simulation.defects.descents import DESCENTS
from tests.simulation.defects.effects import EFFECTS
from tests.simulation.defects.faults import FAULTS
from tests.simulation.defects.histories import HISTORIES
from tests.simulation.defects.lineages import LINEAGES
from tests.simulation.defects.outcomes import MARKS
from tests.simulation.defects.voids import VOIDS

DEFECTS: Final = (
    *CHECKPOINTS,
    *LINEAGES,
    *DESCENTS,
    *CUTS,
    *MARKS,
    *VOIDS,
    *EFFECTS,
    *CLOCKS,
    *FAULTS,
    *HISTORIES,
)
