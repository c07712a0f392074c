"""Hunts for planted defects: `python -m tests.simulation.hunting` writes the seed that sees each of them.

A known seed makes the check short. When the code changes, the same seed may draw another schedule, and the
hunt tries all seeds from 0 on. So a stale file costs time, and no defect is missed.
"""

import json
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

from sluicegate.simulator import LENGTH, attempt, draw_plan
from tests.simulation.defects.every import DEFECTS
from tests.simulation.planting import planted

SEEN_WITHIN: Final = 2_000
FILE: Final = Path(__file__).parent / "defects" / "seeds.json"
SEEDS: Final[dict[str, int]] = json.loads(FILE.read_text(encoding="utf-8"))
"""By defect, a seed that saw it when the file was written."""


class Hunt(NamedTuple):
    """Result of the hunt for one defect."""

    seed: int | None
    """The first seed tried that sees the defect as the invariant that it breaks; None if no seed does."""
    said: str
    """The violation then; without one, the other violations by invariant, with their first seeds."""


def hunt(place: int, *, known: bool = True) -> Hunt:
    """Try the known seed of the defect at this place, and then all seeds from 0 on."""
    defect, also = DEFECTS[place], dict[str, int]()
    first = [SEEDS[defect.name]] if known and defect.name in SEEDS else []
    with planted(defect):
        for seed in chain(first, range(SEEN_WITHIN)):
            _, broken = attempt(draw_plan(seed, LENGTH, defect.favour))
            if broken is not None and broken.invariant == defect.breaks:
                return Hunt(seed, str(broken)[:200])
            if broken is not None:
                also.setdefault(broken.invariant, seed)
    return Hunt(None, str(also))


def main() -> None:
    """Hunt for all defects, and write the seeds."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        found = [pool.submit(hunt, place, known=False) for place in range(len(DEFECTS))]
        seeds = {defect.name: each.result().seed for defect, each in zip(DEFECTS, found, strict=True)}
    FILE.write_text(json.dumps(seeds, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
