"""Defects in what a table's history proves."""

from typing import Final

from sluicegate.lakes import history
from tests.simulation.planting import Defect

HISTORIES: Final = (
    Defect(
        "a foreign job's lower id of our commit user ends the search for a decision",
        history,
        "_walk",
        "            highest = _highest(highest, past.decision)\n",
        "            if past.decision < decision:\n"
        "                return _Walk(other, highest, made, recorded or past.ref, NoParent.FIRST)\n"
        "            highest = _highest(highest, past.decision)\n",
        "I3",
        ("impostor", "unknown, visible"),
    ),
    Defect(
        "a foreign job's commit under the id of a decision hides the decision",
        history,
        "_walk",
        "                other = OtherDigest(past.digest)\n",
        "                return _Walk(OtherDigest(past.digest), None, None, past.ref, None)\n",
        "I12",
        ("impostor", "unknown, visible"),
    ),
)
