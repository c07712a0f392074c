"""A commit interval makes few commits of many completions, and the table is the same."""

from typing import Final, NamedTuple

import pytest

from tests.golden.script import Script

STEP: Final = 200
"""Milliseconds between two completions."""
BATCHES: Final = 200
INTERVAL: Final = 10_000


class Run(NamedTuple):
    """The commits of one run."""

    times: list[int]
    """Time of each publication, in milliseconds after the first completion."""
    files: list[str]
    decisions: list[int]


def run(settings: str) -> Run:
    """Complete five checkpoints a second, then let everything be committed."""
    lines = ["regions r1", f"settings {settings}", "register r1 q.0"]
    for number in range(BATCHES):
        lines += [f"batch r1 q.0 {number} f{number}", f"tick {STEP}"]
    lines += ["close r1 q.0 " + str(BATCHES - 1)]
    script = Script()
    now, times = 0, list[int]()
    for line in script.run("\n".join(lines)).splitlines():
        now += STEP if line.startswith("tick") else 0
        times += [now] if line.startswith("> Publish") else []
    table = script.world.table
    return Run(times, table.files, [each.decision for each in table.snapshots])


@pytest.mark.slow
def test_one_commit_in_each_interval() -> None:
    each, grouped = run("timeout=10000"), run(f"timeout=10000 interval={INTERVAL}")
    assert len(each.times) == BATCHES
    # The last commit is that of the closing, which does not wait.
    gaps = [after - before for before, after in zip(grouped.times, grouped.times[1:-1], strict=False)]
    assert gaps == [INTERVAL] * (BATCHES * STEP // INTERVAL - 1)
    assert grouped.files == each.files == [f"f{number}" for number in range(BATCHES)]
    assert grouped.decisions == [*range(1, len(grouped.times) + 1)]


def test_a_process_that_is_always_slow_commits() -> None:
    """Each of its polls comes so late that it seems to have stood still."""
    script = Script()
    script.run("regions r1\nregister r1 q.0\nwrite r1 q.0 0 f1\ncomplete r1 q.0 0 f1 &")
    node, world = script._node, script.world
    assert node is not None
    for _ in range(40):
        world.now += 2 * world.settings.freeze
        node._read()
        for effect in node.machine.poll(world.now):
            node._run(effect)
    assert world.table.files == ["f1"]
