"""Random scripts: all comes to rest and is committed, changes are in the tables, and every reader agrees."""

from random import Random
from typing import Final

import pytest

from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.state import LightState
from sluicegate.coordinator.core.transitions import allowed
from tests.golden.script import Script
from tests.golden.test_transitions import Changes

RUNS: Final = 150
KNOWN_TO_ONE: Final = {"recorded", "snapshot", "committed", "pending", "table", "partition"}
"""What of the light state does not come from the log alone."""
EFFECTS: Final = (
    "AppendDecision",
    "AppendAbandoned",
    "AppendVoided",
    "Announce",
    "WriteRecord",
    "Ask",
    "CheckFiles",
)
MISHAPS: Final = ("crash before", "crash after", "is lost", "is done but unknown")


class Author:
    """Writes a script that makes sense more often than not."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.number = 0
        self.regions = ["r1", "r2"]
        self.live = {"r1": (0, 0, 0), "r2": (0, 0, 0)}
        """By region: the number of its lineage, the next checkpoint, and the lineage's first one."""
        self.late: list[str] = []
        self.frozen = False
        self.lines = [f"settings max={self.random.randint(1, 3)}", "open r1 q.0", "open r2 q.0"]

    def script(self) -> str:
        words = [self._complete] * 8 + [self._time, self._mishap] * 2
        words += [
            self._arrive,
            self._status,
            self._rewind,
            self._open,
            self._split,
            self._zombie,
            self._order,
        ]
        words += [self._fail]
        for number in range(self.random.randrange(5, 45)):
            self.random.choice(words)(number)
        return "\n".join(self.lines) + "\n"

    def _say(self, line: str) -> None:
        self.lines.append(line + (" &" if self.random.random() < 0.3 else ""))

    def _region(self) -> tuple[str, str, int, int]:
        name = self.random.choice(sorted(self.live))
        generation, following, first = self.live[name]
        return name, f"q.{generation}", following, first

    def _complete(self, number: int) -> None:
        name, lineage, at, first = self._region()
        after = "" if at > first else "after=-"
        written = f"{name} {lineage} {at} e{number}"
        if self.random.random() < 0.25:
            self._say(f"complete {written} {after} watermark={number}")
            self.late.append(f"write {written}")
        else:
            self._say(f"batch {written} {after} watermark={number}")
        self.live[name] = (self.live[name][0], at + 1, first)

    def _arrive(self, number: int) -> None:
        if self.late:
            self._say(self.late.pop(self.random.randrange(len(self.late))))

    def _time(self, number: int) -> None:
        self.lines.append(f"tick {self.random.choice([1000, 5000, 10000, 11000])}")

    def _status(self, number: int) -> None:
        name, lineage, at, _ = self._region()
        state = self.random.choice(["idle", "idle", "busy", "closed"])
        self._say(
            f"close {name} {lineage} {at - 1 if at else '-'}"
            if state == "closed"
            else f"heartbeat {name} {lineage} {state}"
        )

    def _rewind(self, number: int) -> None:
        name, lineage, at, first = self._region()
        to = self.random.randrange(first - 1, at) if at > first else first - 1
        parent = f"{name}:{lineage}:{to if to >= first else '-'}"
        generation, start = self.live[name][0] + 1, to + 1 if to >= first else 0
        self.live[name] = (generation, start, start)
        self._say(f"open {name} q.{generation} {self._assignment()} parents={parent}")

    def _open(self, number: int) -> None:
        name, lineage, _, _ = self._region()
        sink = self.random.choice(["independent"] * 9 + ["all-to-all"])
        self._say(f"open {name} {lineage} {self._assignment()} sink={sink}")

    def _assignment(self) -> str:
        return f"number={self.number} regions={','.join(self.regions)}"

    def _split(self, number: int) -> None:
        if self.number == 2:
            return
        old = self.random.choice(self.regions)
        generation, at, first = self.live[old]
        self.number += 1
        child = f"r{2 + self.number}"
        self.regions = [*(name for name in self.regions if name != old), child]
        self.live[child] = (0, 0, 0)
        parent = f"{old}:q.{generation}:{at - 1 if at > first else '-'}"
        self._say(f"open {child} q.0 {self._assignment()} parents={parent}")

    def _mishap(self, number: int) -> None:
        effect, mishap = self.random.choice(EFFECTS), self.random.choice(MISHAPS)
        publish = self.random.choice([*MISHAPS, "conflict", "refused by the table"])
        self.lines.append(
            self.random.choice(
                [f"next {effect} {mishap}", f"next Publish {publish}", "start", "crash", "lose record"]
            )
        )

    def _zombie(self, number: int) -> None:
        if self.frozen:
            self.lines.append("thaw")
        else:
            effect = self.random.choice(["Publish", *EFFECTS])
            self.lines += ["release", "start", f"hold {effect}", "tick 1000", "freeze", "release", "start"]
        self.frozen = not self.frozen

    def _order(self, number: int) -> None:
        name, _, at, _ = self._region()
        void = f"command void decision={self.random.randint(1, 5)} region={name} checkpoint={max(at - 1, 0)}"
        others = [f"command {each} name=s{number}" for each in ("savepoint", "drain")]
        self._say(self.random.choice([void, void, *others, f"command remove region={name}"]))

    def _fail(self, number: int) -> None:
        name, lineage, at, _ = self._region()
        place = f"{name} {lineage} {max(at - 1, 0)}"
        self._say(self.random.choice([f"failed {place} lost", f"complete {place} digest=other"]))


def rewinds(state: LightState) -> list[str]:
    """Every region begins a new lineage where it is committed, and completes a checkpoint of it."""
    held = state.next or state.assignment
    if held is None:
        return []
    openings, batches = list[str](), list[str]()
    for name in held.regions:
        region = state.regions.get(name)
        parent = ""
        if region and region.chain:
            at = f"{region.ref.lineage}:{region.ref.checkpoint}" if region.ref else f"{region.chain[0]}:-"
            parent = f"parents={name}:{at}"
        openings.append(f"open {name} z.0 number={held.number} regions={','.join(held.regions)} {parent} &")
        batches.append(f"batch {name} z.0 100 z{name} after=- &")
    return openings + batches


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_random_script(seed: int) -> None:
    author, watch = Author(seed), Changes()
    script = Script(watch)
    script.run(author.script())
    script.world.once.clear()
    script.run("\n".join([*author.late, "release", "thaw", "start", "tick 40000", ""]))
    assert [each for each in watch.seen if not allowed(each.kind, each.before, each.after)] == []
    machine, state = script.machine, script.machine.book.state
    reader = script.reader().book.state
    assert state.model_dump(exclude=KNOWN_TO_ONE) == reader.model_dump(exclude=KNOWN_TO_ONE)
    if machine.stall is None and state.blocked is None and not state.pending:
        assert machine.outbox.due == []
        assert cuts.choose(machine.book) is None, "a full cut is possible, and not decided"
    # Once the faults are over everything is committed, or it is said why not.
    script.run("\n".join([*rewinds(state), "tick 40000", "tick 40000", ""]))
    state = script.machine.book.state
    held = state.next or state.assignment
    committed = held is not None and all(
        (region := state.regions.get(name)) is not None
        and region.ref is not None
        and region.ref.lineage == "z.0"
        for name in held.regions
    )
    assert committed or script.machine.stall_reason is not None
