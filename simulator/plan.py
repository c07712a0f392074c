"""Plans of schedules: a setting and random steps, drawn from a seed before anything runs."""

from dataclasses import dataclass
from typing import Final

from sluicegate.simulator.dice import Dice
from sluicegate.simulator.setting import Setting, draw_setting

LENGTH: Final = 400
"""Steps of a plan; what follows them, until everything is at rest, counts too."""
ALWAYS: Final = {"drive": 26, "read": 16, "effect": 46, "view": 1, "care": 3, "assignment": 2}
FAULTS: Final = {
    # The job.
    "restart": 2, "back up": 2, "restore": 2, "reset": 1, "lose files": 1, "contradict": 1, "replay": 2,
    "deliver": 3, "heartbeat": 2, "zombie": 2, "both attempts": 1, "skip": 1, "late closing": 1,
    "idle in a batch": 1, "duplicate": 2, "reassign": 1, "stray": 2, "stand still": 5, "other range": 0.5,
    "unreadable": 0.5, "late uploads": 3,
    # The coordinators.
    "crash": 6, "freeze": 5, "thaw": 4, "rebalance": 2, "more": 1, "old record": 1, "record lost": 0.5,
    "lost append": 4, "unheard append": 4, "wait": 2, "forged decision": 3, "forged outcome": 1,
    "older policy": 0.5, "forged attempt": 1, "records deleted": 3, "records expired": 0.5,
    "orphans deleted": 0.5, "base overwritten": 0.5,
    # The table and the other stores.
    "away": 3, "conflict": 2, "unknown, invisible": 3, "unknown, visible": 3, "refused": 1,
    "files refused": 1, "foreign": 2, "impostor": 1, "expire": 2, "unfit table": 1, "another table": 1.5,
    "roll back": 1, "view wiped": 1, "view lost": 1, "clock jumps": 2, "wrong append time": 2,
    # The operator.
    "pause": 1, "savepoint": 1, "cancel": 0.5, "revert": 4, "remove": 0.7, "policy": 1, "withdraw": 3,
}  # fmt: skip
TROUBLES: Final = (
    "restart", "back up", "restore", "reset", "lose files", "contradict", "replay", "deliver", "heartbeat",
    "zombie", "duplicate", "both attempts", "skip", "late closing", "idle in a batch",
    "stand still", "other range", "unreadable", "late uploads",
)  # fmt: skip
"""Faults of one driver."""
THEMES: Final = (
    ("reassign", "withdraw"),
    ("reassign", "revert"),
    ("remove", "revert"),
    ("restart", "restore", "back up"),
    ("contradict", "replay", "zombie"),
    ("revert", "unknown, visible", "crash"),
    ("savepoint", "reset", "revert"),
    ("wait", "policy"),
    ("refused", "revert", "reset"),
    ("reassign", "savepoint", "remove"),
    ("reassign", "stray", "unknown, invisible"),
    ("expire", "foreign", "unknown, visible", "crash"),
    ("another table", "foreign", "unknown, visible"),
    ("roll back", "expire", "unknown, visible", "record lost"),
    ("stand still", "heartbeat", "wait", "crash"),
    ("late uploads", "reassign", "savepoint"),
    ("stand still", "heartbeat", "wait", "lost append", "unheard append", "freeze"),
    ("stand still", "forged decision", "forged attempt"),
    ("revert", "refused", "unknown, invisible", "lost append", "unheard append", "freeze", "crash"),
    ("stand still", "wait", "policy", "lost append", "unheard append", "freeze", "crash"),
    ("stand still", "policy", "forged decision"),
    ("expire", "foreign", "unknown, visible", "freeze"),
    ("records deleted", "old record", "record lost", "freeze", "thaw"),
    ("records deleted", "old record", "base overwritten"),
    ("records deleted", "records expired", "unknown, invisible", "revert", "late uploads"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    after: int
    kind: str
    who: int
    draw: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule before it has run."""

    seed: int
    setting: Setting
    steps: tuple[Step, ...]


def draw_plan(seed: int, length: int = LENGTH, favour: tuple[str, ...] = ()) -> Plan:
    """Return the plan of a seed."""
    setting, dice = draw_setting(Dice(seed ^ 0x5EED)), Dice(seed)
    weights: dict[str, float] = {kind: weight * (0.5 + dice.share()) for kind, weight in ALWAYS.items()}
    amount, share = dice.pick((0.3, 1.0, 1.0, 2.5)), dice.pick((0.1, 0.3, 0.6))
    for kind, weight in FAULTS.items():
        if dice.chance(share):
            weights[kind] = amount * weight * dice.share()
    theme = dice.pick(THEMES) if dice.chance(0.7) else ()
    weights |= dict.fromkeys(favour or theme, 5.0)
    kinds, bounds, total = list(weights), list[float](), 0.0
    for kind in kinds:
        total += weights[kind]
        bounds.append(total)
    gaps = dice.pick(((1, 5, 20, 100), (5, 20, 100, 400), (1, 1, 1, 5)))
    steps = []
    for _ in range(length):
        drawn = dice.share() * total
        kind = kinds[next(index for index, bound in enumerate(bounds) if drawn < bound)]
        steps.append(Step(dice.pick(gaps), kind, dice.below(64), dice.draw()))
    return Plan(seed, setting, tuple(steps))
