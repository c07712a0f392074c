"""Hunts for planted defects: `python -m tests.simulation.hunting` writes the seed that sees each of them.

A known seed makes the check short. When the code changes, the same seed may draw another schedule, and the
hunt tries all seeds from 0 on. So a stale file costs time, and no defect is missed.
"""

import json
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from tests.simulation.defects import DEFECTS
from tests.simulation.seams import planted
from tests.simulator.plan import draw_plan
from tests.simulator.schedule import attempt

SEEN_WITHIN: Final = 1_000
FILE: Final = Path(__file__).parent / "seeds.json"
SEEDS: Final[dict[str, int]] = json.loads(FILE.read_text(encoding="utf-8"))
"""By defect, a seed that saw it when the file was written."""


def hunt(place: int, *, known: bool = True) -> int | None:
    """Return the first seed tried that sees the defect at this place as an invariant that it breaks."""
    defect = DEFECTS[place]
    first = [SEEDS[defect.name]] if known and defect.name in SEEDS else []
    with planted(defect):
        for seed in chain(first, range(SEEN_WITHIN)):
            _, broken = attempt(draw_plan(seed, favour=defect.favour))
            if broken is not None and broken.invariant in defect.invariants:
                return seed
    return None


def main() -> None:
    """Hunt for all defects, and write the seeds of those that are seen."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        found = [pool.submit(hunt, place, known=False) for place in range(len(DEFECTS))]
        seeds = {defect.name: each.result() for defect, each in zip(DEFECTS, found, strict=True)}
    seen = {name: seed for name, seed in seeds.items() if seed is not None}
    FILE.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
