"""What a schedule is made of: a setting and a list of steps, both drawn from one seed.

A step carries its own draw, from which everything follows that happens in it; so any step can be left
out, and the others still mean the same.
"""

from bisect import bisect
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, Literal, NamedTuple

from sluicegate.simulator.dice import Dice


class Step(NamedTuple):
    """One step: so many milliseconds after the one before, this happens to that one."""

    after: int
    kind: str
    who: int
    draw: int


ALWAYS: Final = {"drive": 26, "read": 16, "effect": 46, "view": 1}
"""What happens in every schedule, with its weight."""

FAULTS: Final = {
    # The job.
    "speculate": 2, "replay": 2, "skip": 2, "redo": 2, "zombie": 2, "duplicate": 2, "deliver": 3, "idle": 3,
    "idle in a batch": 2, "misplace": 1, "out of order": 2,
    "hint": 1, "restart": 2, "rewind": 2, "amnesia": 1, "set back": 2, "accept": 1, "lose": 1,
    "contradict": 2, "silence": 3, "die": 1, "resplit": 2, "close early": 1, "bad opening": 2,
    "others' opening": 2, "old file": 1, "both attempts": 1,
    # The coordinators.
    "crash": 5, "freeze": 3, "thaw": 3, "rebalance": 2, "more coordinators": 1, "old record": 1,
    "lost append": 2, "unheard append": 2, "wait": 2,
    # The table and the other stores.
    "away": 3, "conflict": 2, "unknown, invisible": 3, "unknown, visible": 3, "refused": 1,
    "files refused": 1, "foreign": 2, "impostor": 2, "unfit table": 1, "replaced table": 1,
    "table rolled back": 1, "proof expired": 1, "joined table": 1, "expire": 3,
    "view wiped": 1,
    "another deployment": 1, "clock jumps": 2, "wrong append time": 2,
    "view lost": 1, "newer record": 1, "retention": 3, "bodies dropped": 2,
    # The operator.
    "pause": 1, "log stall": 1, "resume": 2, "savepoint": 1, "drain": 1, "void": 4, "remove": 1, "policy": 2,
}  # fmt: skip
"""What goes wrong or is ordered, with its weight; every schedule has some of them."""

THEMES: Final = (
    ("resplit", "rewind"),
    ("resplit", "rewind", "restart", "die"),
    ("resplit", "void"),
    ("resplit", "contradict", "lose"),
    ("resplit", "contradict", "hint", "lose"),
    ("resplit", "void", "contradict", "hint"),
    ("resplit", "void", "rewind"),
    ("resplit", "void", "rewind", "restart"),
    ("resplit", "void", "rewind", "lost append"),
    ("resplit", "policy", "rewind"),
    ("resplit", "others' opening"),
    ("void", "skip", "deliver"),
    ("void", "lost append", "unheard append", "crash"),
    ("void", "rewind"),
    ("silence", "policy", "die"),
    ("contradict", "replay", "zombie"),
    ("close early", "bad opening"),
    ("impostor", "unknown, visible"),
    ("set back", "replay", "amnesia"),
    ("crash", "lost append", "unheard append", "silence", "die"),
    ("lost append", "unheard append", "silence", "freeze"),
    ("clock jumps", "wrong append time", "silence", "die"),
)
"""What is favoured together in some schedules, since each of it alone seldom leads anywhere."""
FAVOURED: Final = 6.0
"""The weight of what is favoured."""
Sink = Literal["independent", "all-to-all", "shared-files"]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a schedule starts with; times in milliseconds."""

    seed: int
    regions: int
    coordinators: int
    items: int
    """Of every shard of the source."""
    partial: bool
    most_fallbacks: int
    sink: Sink
    owned: bool
    unbounded: bool
    """Regions that have read everything fall idle, and do not close."""
    alignment_timeout: int
    record_interval: int
    probe_interval: int
    stall_pause: int
    carry_after: int | None
    """Age at which what is pending is appended again."""
    memory: int
    """How many bodies a coordinator keeps."""
    watched: bool
    """Count the transitions of the core's tables."""
    falling: bool
    """Writers send the maximum of each batch, which falls now and then."""
    twice: bool
    """Run once more without any view, which must change nothing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule before it has run."""

    setting: Setting
    steps: tuple[Step, ...]


def draw_plan(seed: int, length: int, favour: tuple[str, ...] = ()) -> Plan:
    """The plan of a seed; the faults that are favoured are surely in it, and often."""
    dice = Dice(seed)
    setting = Setting(
        seed=seed,
        regions=dice.pick((1, 2, 2, 3, 3, 4)),
        coordinators=dice.pick((1, 1, 2, 2, 3)),
        items=dice.between(3, 24),
        partial=dice.chance(0.8),
        most_fallbacks=dice.pick((1, 1, 2, 3)),
        sink="independent" if dice.chance(0.85) else dice.pick(("all-to-all", "shared-files")),
        owned=dice.chance(0.9),
        unbounded=dice.chance(0.3),
        alignment_timeout=dice.pick((100, 100, 400, 1_500, 10_000)),
        record_interval=dice.pick((500, 20_000)),
        probe_interval=dice.pick((2_000, 300_000)),
        stall_pause=dice.pick((100, 1_000, 15_000)),
        carry_after=dice.pick((None, 300, 1_000, 5_000)),
        memory=dice.pick((0, 0, 5, 1_000)),
        watched=dice.chance(0.35),
        falling=dice.chance(0.4),
        twice=dice.chance(0.05),
    )
    if setting.twice:
        # Both runs are compared instant by instant, and what is to be carried is looked for at every poll.
        setting = replace(setting, carry_after=None)
    theme = dice.pick(THEMES) if dice.chance(0.5) else ()
    if "silence" in theme:
        setting = replace(setting, partial=True, most_fallbacks=dice.between(1, 2), alignment_timeout=100)
    return Plan(setting, _draw_steps(dice, length, favour or theme))


def _draw_steps(dice: Dice, length: int, favour: tuple[str, ...]) -> tuple[Step, ...]:
    weights = {kind: weight * (0.5 + dice.share()) for kind, weight in ALWAYS.items()}
    amount = dice.pick((0.3, 1.0, 1.0, 2.5))
    share = dice.pick((0.1, 0.3, 0.6))
    for kind, weight in FAULTS.items():
        if dice.chance(share):
            weights[kind] = amount * weight * dice.share()
    weights |= dict.fromkeys(favour, FAVOURED)
    kinds, bounds = list(weights), list(accumulate(weights.values()))
    gaps = dice.pick(((1, 5, 20, 100), (5, 20, 100, 400), (1, 1, 1, 5)))
    steps: list[Step] = []
    for _ in range(length):
        kind = kinds[bisect(bounds, dice.share() * bounds[-1])]
        steps.append(Step(dice.pick(gaps), kind, dice.below(64), dice.draw()))
    return tuple(steps)
