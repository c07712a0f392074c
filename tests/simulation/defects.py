"""Defects planted into the core, each at a named seam, with the invariants that must break."""

from typing import Final

from tests.simulation.defects_in_commits import IN_COMMITS
from tests.simulation.defects_in_cuts import IN_CUTS
from tests.simulation.defects_in_deletions import IN_DELETIONS
from tests.simulation.defects_in_outcomes import IN_OUTCOMES
from tests.simulation.defects_in_regions import IN_REGIONS
from tests.simulation.defects_in_registrations import IN_REGISTRATIONS
from tests.simulation.defects_in_tables import IN_TABLES

DEFECTS: Final = (
    *IN_CUTS, *IN_REGIONS, *IN_COMMITS, *IN_REGISTRATIONS, *IN_OUTCOMES, *IN_DELETIONS, *IN_TABLES,
)  # fmt: skip
