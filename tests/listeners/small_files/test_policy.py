"""The policy of hints: counts of small files by partition, the clock, and the limit of the state."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from sluicegate.listeners.small_files import policy
from sluicegate.listeners.small_files.policy import Counts, Hint, Part, Seen, Terms, commit, elapse, wake

HOUR = 3_600_000
TERMS = Terms(smaller_than=1 << 25, files=5, quiet=HOUR, partitions=100)


def seen(decision: int, time: int = 0, **files: int) -> Seen:
    """Return a commit that gave small files of 10 bytes each to partitions `dt`."""
    parts = tuple(Part({"dt": name}, count, 10 * count) for name, count in files.items())
    return Seen(decision, time, decision * 10, parts)


def live(*commits: Seen, terms: Terms = TERMS) -> tuple[Counts, list[Hint]]:
    counts, hints = Counts(), list[Hint]()
    for each in commits:
        decided = commit(counts, each, terms)
        counts = decided.counts
        hints += decided.hints
    return counts, hints


def names(hints: "list[Hint] | tuple[Hint, ...]") -> list[tuple[str | None, int, str]]:
    return [(each.values["dt"], each.files, each.reason) for each in hints]


def test_a_hint_has_the_files_since_the_last_one() -> None:
    _, hints = live(seen(1, a=3), seen(2, b=1), seen(3, a=2), seen(4, a=4), seen(5, a=2))
    assert hints == [
        Hint({"dt": "a"}, 1 << 25, 5, 50, since=1, decision=3, snapshot=30, reason="files"),
        Hint({"dt": "a"}, 1 << 25, 6, 60, since=4, decision=5, snapshot=50, reason="files"),
    ]
    assert hints[0].key != hints[1].key


def test_one_commit_may_be_enough_for_several_partitions() -> None:
    counts, hints = live(seen(1, a=9, b=4, c=5))
    assert names(hints) == [("a", 9, "files"), ("c", 5, "files")]
    assert list(counts.partitions) == ['{"dt": "b"}']


def test_a_commit_without_small_files_keeps_the_counts() -> None:
    counts, hints = live(seen(1, a=4), seen(2))
    assert hints == []
    assert (counts.decision, counts.snapshot, counts.partitions['{"dt": "a"}'].files) == (2, 20, 4)


def test_a_repeated_commit_counts_once() -> None:
    counts, hints = live(seen(1, a=4), seen(1, a=4))
    assert hints == []
    assert counts.partitions['{"dt": "a"}'].files == 4


def test_a_quiet_partition_has_its_hint_when_the_time_has_passed() -> None:
    counts, _ = live(seen(1, 0, a=2), seen(2, 1_000, b=1), seen(3, 2_000, a=1), seen(4, 3_000, c=2))
    assert wake(counts, TERMS) == 2_000 + HOUR
    assert elapse(counts, 1_999 + HOUR, TERMS).hints == ()
    first = elapse(counts, 2_000 + HOUR, TERMS)
    assert names(first.hints) == [("a", 3, "quiet")]
    assert first.hints[0].snapshot == 40
    assert wake(first.counts, TERMS) == 3_000 + HOUR
    second = elapse(first.counts, 9 * HOUR, TERMS)
    assert names(second.hints) == [("c", 2, "quiet")]
    assert list(second.counts.partitions) == ['{"dt": "b"}'], "one file alone waits for another one"
    assert wake(second.counts, TERMS) is None


def test_without_a_quiet_time_the_clock_causes_nothing() -> None:
    terms = TERMS._replace(quiet=0)
    counts, _ = live(seen(1, a=4), terms=terms)
    assert wake(counts, terms) is None
    assert elapse(counts, 10**15, terms) == policy.Decided(counts)


def test_a_commit_with_unknown_sizes_is_remembered_and_ends_no_count() -> None:
    counts, hints = live(seen(1, a=4), Seen(2, 0, 20, None), seen(3, a=1))
    assert names(hints) == [("a", 5, "files")]
    assert counts.unknown == (2,)
    many, _ = live(*[Seen(number, 0, None, None) for number in range(1, 20)])
    assert many.unknown == tuple(range(12, 20))


def test_with_more_partitions_than_the_limit_the_one_that_waited_longest_has_its_hint_early() -> None:
    terms = TERMS._replace(partitions=2)
    counts, hints = live(seen(1, a=3), seen(2, b=3), seen(3, a=1), seen(4, c=1), terms=terms)
    assert names(hints) == [("b", 3, "room")]
    counts, hints = live(seen(1, a=1), seen(2, b=2, c=2), terms=terms)
    assert hints == [], "one file alone is forgotten"
    assert list(counts.partitions) == ['{"dt": "b"}', '{"dt": "c"}']


def test_long_values_leave_when_they_have_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "LONGEST", 30)
    counts, hints = live(seen(1, a=3), seen(2, b=3), seen(3, c=3))
    assert names(hints) == [("a", 3, "room")]
    counts, hints = live(seen(1, a=3), seen(2, **{"x" * 40: 3}))
    assert names(hints) == [("a", 3, "room"), ("x" * 40, 3, "room")]
    assert counts.partitions == {}


def test_a_lower_number_of_files_in_the_settings_takes_effect_with_the_next_commit() -> None:
    counts, _ = live(seen(1, a=4, b=1))
    assert names(commit(counts, seen(2), TERMS._replace(files=3)).hints) == [("a", 4, "files")]


@pytest.mark.parametrize("seed", range(20))
def test_each_small_file_is_in_one_hint_or_still_counted(seed: int) -> None:
    chance = random.Random(seed)
    terms = TERMS._replace(files=chance.randint(2, 9), partitions=6, quiet=chance.choice([0, 5]))
    counts, hints, given, forgotten = Counts(), list[Hint](), Counter[str](), Counter[str]()
    for decision in range(1, 200):
        files = {chance.choice("abcdefghij"): chance.randint(1, 4) for _ in range(chance.randint(0, 3))}
        given.update(files)
        made = commit(counts, seen(decision, decision, **files), terms)
        timed = elapse(made.counts, decision + chance.randint(0, 3), terms)
        known = {name: counted(counts, name) + files.get(name, 0) for name in given}
        counts, found = timed.counts, [*made.hints, *timed.hints]
        hints += found
        hinted = {each.values["dt"] for each in found}
        # One file alone that had no room.
        forgotten.update(
            {name for name, number in known.items() if number and not counted(counts, name)} - hinted
        )
        assert len(counts.partitions) <= 6
    for name, total in given.items():
        own = [each for each in hints if each.values["dt"] == name]
        assert sum(each.files for each in own) + counted(counts, name) + forgotten[name] == total
        assert all(first.decision < second.since for first, second in pairwise(own))
        assert all(each.files >= 2 for each in own)


def counted(counts: Counts, name: str) -> int:
    found = counts.partitions.get(f'{{"dt": "{name}"}}')
    return found.files if found is not None else 0
