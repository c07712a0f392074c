"""Which moments are chosen, and how much the jobs may write between them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.demo.data import SourceFile
from sluicegate.demo.feed import Feed, share_due
from sluicegate.demo.kills import EARLY_KILLS, REGISTRATION_STEPS, Killer
from sluicegate.demo.phases import COMMIT_STEPS, READING, START_STEPS
from sluicegate.demo.services import Coordinator


def _killer(tmp_path: Path, committing: Callable[[], bool], seed: int = 1) -> Killer:
    coordinator = Coordinator(tmp_path / "coordinator.toml", tmp_path)
    return Killer(coordinator, 5, seed, 2, committing, lambda text: None)


def test_the_first_kills_come_while_regions_register(tmp_path: Path) -> None:
    killer = _killer(tmp_path, lambda: False)
    chosen = {killer.plan().step for _ in range(200)}
    assert chosen == {*START_STEPS, *REGISTRATION_STEPS}
    killer.phases["Announce"] = EARLY_KILLS
    assert {killer.plan().step for _ in range(200)} > {"Ask", "Publish"}, "later ones wait for a commit"


def test_steps_not_hit_yet_are_preferred(tmp_path: Path) -> None:
    killer = _killer(tmp_path, lambda: True)
    killer.phases.update([*START_STEPS, *COMMIT_STEPS])
    del killer.phases["Publish"]
    assert {killer.plan().step for _ in range(200)} == {"Ask", "Publish", None}, "or the step before it"
    killer.phases["Publish"] = 1
    assert {killer.plan().step for _ in range(500)} == {*START_STEPS, *COMMIT_STEPS, None}
    killer.phases[READING] = 1
    assert None not in {killer.plan().step for _ in range(500)}


def test_a_life_lasts_for_some_commits_but_never_for_more_than_asked(tmp_path: Path) -> None:
    killer = _killer(tmp_path, lambda: True)
    assert {killer.plan().turn for _ in range(200)} == {1, 2}


def test_a_seed_gives_the_same_moments(tmp_path: Path) -> None:
    one, same, other = (_killer(tmp_path, lambda: True, seed) for seed in (7, 7, 8))
    plans = [one.plan() for _ in range(20)]
    assert plans == [same.plan() for _ in range(20)]
    assert plans != [other.plan() for _ in range(20)]


def test_without_kills_the_jobs_get_everything_at_once() -> None:
    assert share_due(kills=0, killed=0, batches=48, ready=None) == 1.0


@pytest.mark.parametrize("killed", [0, 1, 2, 3])
def test_files_are_left_for_every_kill_and_for_the_time_after_the_last(killed: int) -> None:
    shares = [share_due(4, killed, 40, ready) for ready in (None, *map(float, range(600)))]
    assert shares == sorted(shares)
    assert shares[0] == shares[1] == (killed + 0.5) / 5, "work is there while the coordinator starts"
    assert shares[5] == pytest.approx((killed + 1) / 5), "four seconds for eight batches"
    assert shares[-1] == 4 / 5
    assert share_due(4, 4, 40, None) == 1.0


def test_files_move_in_their_order_and_never_back(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    files = [SourceFile(source / f"EWR-{number}.parquet", 1) for number in range(5)]
    for file in files:
        file.path.touch()
    feed = Feed({"EWR": files}, tmp_path / "inbox")
    seen = []
    for share in (0.0, 0.3, 0.1, 1.0, 1.0):
        feed.open(share)
        seen.append(sorted(path.name for path in feed.folder("EWR").iterdir()))
    names = [file.path.name for file in files]
    assert seen == [[], names[:2], names[:2], names, names]
