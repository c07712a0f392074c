"""The seams of the core of version 4, at which defects can be planted, are there."""

import pytest

from tests.simulation4.defects import DEFECTS
from tests.simulation4.seams import SEAMS, planted


@pytest.mark.parametrize("seam", SEAMS)
def test_every_seam_is_there(seam: str) -> None:
    owner, attribute = SEAMS[seam]
    assert hasattr(owner, attribute), f"{seam}: {attribute} was renamed"


def test_every_defect_can_be_planted_and_taken_back() -> None:
    for defect in DEFECTS:
        owner, attribute = SEAMS[defect.seam]
        before = vars(owner)[attribute]
        with planted(defect):
            assert vars(owner)[attribute] is not before
        assert vars(owner)[attribute] is before


def test_names_are_distinct() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 50
    assert {defect.seam for defect in DEFECTS} <= SEAMS.keys()
