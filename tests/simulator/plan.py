"""Plans of schedules: a setting and random steps, drawn from a seed before anything runs."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.simulator.dice import Dice
from tests.simulator.setting import Need, Setting, draw_setting, suit, with_tables

LENGTH: Final = 400
"""Steps of a plan; what follows them, until everything is at rest, counts too."""
ALWAYS: Final = {"drive": 26, "read": 16, "effect": 46, "view": 1, "care": 5, "assignment": 2}
FAULTS: Final = {
    # The job.
    "restart": 2, "back up": 2, "restore": 2, "reset": 1, "lose files": 1, "contradict": 1, "replay": 2,
    "deliver": 3, "heartbeat": 2, "zombie": 2, "both attempts": 3, "skip": 1, "late closing": 1,
    "idle in a batch": 1, "decline": 2, "take over": 1, "duplicate": 2, "reassign": 1, "stray": 2,
    "stand still": 5, "other range": 0.5, "unreadable": 0.5, "late uploads": 3,
    # The coordinators.
    "crash": 6, "freeze": 5, "thaw": 4, "rebalance": 2, "more": 1, "old record": 1, "record lost": 0.5,
    "lost append": 4, "unheard append": 4, "wait": 2, "forged decision": 3, "forged outcome": 1,
    "older policy": 0.5, "forged attempt": 1, "records deleted": 3, "records expired": 0.5,
    "orphans deleted": 0.5, "base overwritten": 1,
    # The table and the other stores.
    "away": 3, "conflict": 2, "unknown, invisible": 3, "unknown, visible": 3, "refused": 1,
    "files refused": 1, "foreign": 2, "impostor": 1, "expire": 2, "unfit table": 1, "another table": 1.5,
    "roll back": 1, "view wiped": 1, "view lost": 1, "clock jumps": 2, "wrong append time": 2,
    # The operator.
    "pause": 1, "savepoint": 1, "cancel": 0.5, "revert": 4, "remove": 0.7, "policy": 1, "withdraw": 3,
}  # fmt: skip
OF_FURTHER_TABLES: Final = {
    "tables of the settings": 3, "tables of the job": 2, "table renamed": 1, "further: roll back": 3,
    "further: expire": 2, "further: foreign": 2, "further: impostor": 1, "table dropped": 1,
    "table made again": 1, "table away": 2, "change of a table dropped": 3, "end between two tables": 3,
    "zombie in between": 2,
}  # fmt: skip
"""Faults of streams with further tables."""
TROUBLES: Final = (
    "restart", "back up", "restore", "reset", "lose files", "contradict", "replay", "deliver", "heartbeat",
    "zombie", "duplicate", "both attempts", "skip", "late closing", "idle in a batch", "decline",
    "take over", "stand still", "other range", "unreadable", "late uploads",
)  # fmt: skip
"""Faults of one driver."""


class Theme(NamedTuple):
    """Faults that are frequent in a schedule, and the situation in which they matter."""

    faults: tuple[str, ...]
    focus: tuple[str, ...] = ()
    """Effects that most faults of processes and of effects are about."""
    need: Need = ""


THEMES: Final = (
    Theme(("reassign", "withdraw")),
    Theme(("reassign", "revert")),
    Theme(("remove", "revert")),
    Theme(("restart", "restore", "back up")),
    Theme(("restore", "back up"), need="commits"),
    Theme(("late closing", "restart"), need="commits"),
    Theme(("contradict", "replay", "zombie")),
    Theme(("both attempts", "skip", "reset"), need="commits"),
    Theme(("revert", "unknown, visible", "crash")),
    Theme(("savepoint", "reset", "revert")),
    Theme(("wait", "policy")),
    Theme(("refused", "revert", "reset")),
    Theme(("refused", "revert", "crash"), ("cut.reverted",)),
    Theme(("refused", "revert", "crash", "freeze"), ("cut.reverted",), "commits"),
    Theme(("revert", "unknown, invisible", "lost append", "unheard append"), ("cut.reverted", "Publish")),
    Theme(("refused", "revert", "lost append", "unheard append", "crash"), ("cut.reverted",), "commits"),
    Theme(("reassign", "savepoint", "remove")),
    Theme(("reassign", "stray", "unknown, invisible")),
    Theme(("expire", "foreign", "unknown, visible", "crash"), ("Publish", "cut.committed")),
    Theme(("expire", "foreign", "unknown, visible", "freeze"), ("Publish", "cut.committed")),
    Theme(("another table", "foreign", "unknown, visible")),
    Theme(("another table", "away", "files refused"), ("CheckFiles",), "old heads"),
    Theme(("roll back", "expire", "unknown, visible", "record lost")),
    Theme(("roll back", "impostor", "foreign"), need="commits"),
    # Only a decision between a rollback and the next question about the table can name a head without the
    # newest commit. Drawn alone, the three faults met so once in some thousand schedules.
    Theme(("roll back", "foreign", "forged decision"), need="commits"),
    Theme(("roll back", "foreign", "forged decision", "crash", "freeze"), ("Ask",), "commits"),
    Theme(("stand still", "heartbeat", "wait", "crash", "freeze"), ("region.heartbeat",), "idle"),
    Theme(
        ("stand still", "heartbeat", "wait", "lost append", "unheard append"), ("region.heartbeat",), "idle"
    ),
    Theme(("late uploads", "reassign", "savepoint")),
    Theme(("stand still", "wait", "crash", "freeze"), ("cut.abandoned",), "lagging"),
    Theme(("stand still", "wait", "lost append", "unheard append"), ("cut.abandoned",), "lagging"),
    Theme(("stand still", "forged decision", "forged attempt"), need="lagging"),
    Theme(("stand still", "policy", "forged decision"), need="lagging"),
    Theme(("records deleted", "old record", "record lost", "freeze", "thaw")),
    Theme(("records deleted", "old record", "base overwritten")),
    Theme(("records deleted", "records expired", "unknown, invisible", "revert", "late uploads")),
)
THEMES_OF_TABLES: Final = (
    Theme(("tables of the settings", "tables of the job")),
    Theme(("tables of the settings", "table made again", "revert")),
    Theme(("table made again", "tables of the settings", "crash", "unknown, visible"), ("Publish",)),
    Theme(("change of a table dropped", "tables of the settings", "crash"), ("Publish", "Ask")),
    Theme(("table renamed", "tables of the settings", "crash")),
    Theme(("further: roll back", "further: expire", "further: foreign")),
    Theme(("further: roll back", "crash", "unknown, visible"), ("Publish", "cut.committed")),
    Theme(("further: roll back", "further: expire", "crash"), ("cut.committed",)),
    Theme(("roll back", "revert", "crash", "unknown, visible"), ("Publish", "cut.committed")),
    Theme(("change of a table dropped", "end between two tables", "freeze", "thaw"), ("Publish",)),
    Theme(("change of a table dropped", "roll back", "revert"), ("Publish",)),
    Theme(("table dropped", "table away", "revert", "refused")),
    Theme(("zombie in between", "freeze", "revert", "unknown, invisible"), ("Publish", "Ask")),
    Theme(("zombie in between", "freeze", "revert", "refused"), ("Publish", "Ask")),
)
"""One of them is added to the theme of a schedule with further tables."""
OFTEN: Final = 5.0
"""Weight of a fault of the theme."""
RESTARTS: Final = dict.fromkeys(("old record", "record lost"), 1.0)
"""Weights of those that restart a coordinator, so that only the next steps could have an effect."""


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
    focus: tuple[str, ...] = ()
    """Effects that most faults of processes and of effects are about."""


def draw_plan(seed: int, length: int = LENGTH, favour: tuple[str, ...] = ()) -> Plan:
    """Return the plan of a seed."""
    # Dice of its own, so that the schedules of one table stay as they are.
    tables = Dice(seed ^ 0x7AB1E5)
    setting, dice = draw_setting(Dice(seed ^ 0x5EED)), Dice(seed)
    if not favour or not OF_FURTHER_TABLES.keys().isdisjoint(favour):
        setting = with_tables(setting, tables)
    weights: dict[str, float] = {kind: weight * (0.5 + dice.share()) for kind, weight in ALWAYS.items()}
    amount, share = dice.pick((0.3, 1.0, 1.0, 2.5)), dice.pick((0.1, 0.3, 0.6))
    for kind, weight in FAULTS.items():
        if dice.chance(share):
            weights[kind] = amount * weight * dice.share()
    theme = Theme(favour) if favour else dice.pick(THEMES) if dice.chance(0.7) else Theme(())
    focus = theme.focus
    if setting.tables:
        for kind, weight in OF_FURTHER_TABLES.items():
            if tables.chance(max(share, 0.3)):
                weights[kind] = amount * weight * tables.share()
        if not favour and tables.chance(0.7):
            more = tables.pick(THEMES_OF_TABLES)
            weights |= {kind: OFTEN * max(0.4, tables.share()) for kind in more.faults}
            focus = focus + more.focus
    weights |= {kind: RESTARTS.get(kind, OFTEN) for kind in theme.faults}
    setting = suit(setting, theme.need, dice)
    kinds, bounds, total = list(weights), list[float](), 0.0
    for kind in kinds:
        total += weights[kind]
        bounds.append(total)
    gaps = dice.pick(((1, 5, 20, 100), (5, 20, 100, 400), (1, 1, 5, 50)))
    steps = []
    for _ in range(length):
        drawn = dice.share() * total
        kind = kinds[next(index for index, bound in enumerate(bounds) if drawn < bound)]
        steps.append(Step(dice.pick(gaps), kind, dice.below(64), dice.draw()))
    return Plan(seed, setting, tuple(steps), focus)
