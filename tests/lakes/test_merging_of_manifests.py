"""Which small files are merged: few stay, and no byte is copied often."""

import random

import pytest

from sluicegate.lakes.committer import groups_to_merge

TARGET = 8 << 20
LEAST = 100


@pytest.mark.slow
@pytest.mark.parametrize("largest", [4_000, 40_000, 4_000_000, 20_000_000])
def test_whatever_their_sizes_few_files_stay(largest: int) -> None:
    dice = random.Random(largest)
    sizes: list[int] = []
    written = copied = 0
    for _ in range(6_000 if largest < 1_000_000 else 3_000):
        size = round(4_000 * (largest / 4_000) ** dice.random())
        written += size
        chosen = groups_to_merge(sizes, TARGET, LEAST)
        for group in chosen:
            copied += sum(sizes[at] for at in group)
        merged = {at for group in chosen for at in group}
        kept = [size for at, size in enumerate(sizes) if at not in merged]
        sizes = [size, *(sum(sizes[at] for at in group) for group in chosen), *kept]
        assert sum(size < TARGET for size in sizes) <= 130
    assert copied < 8 * written


def test_a_group_is_closed_at_the_target() -> None:
    assert groups_to_merge([TARGET - 1] * 5, TARGET, LEAST) == [[0, 1], [2, 3]]
    assert groups_to_merge([TARGET] * 500, TARGET, LEAST) == []
    assert groups_to_merge([10] * 99, TARGET, LEAST) == []
    assert groups_to_merge([10] * 100, TARGET, LEAST) == [list(range(100))]
    assert groups_to_merge([10] * 2, TARGET, 1) == [[0, 1]]
    assert groups_to_merge([10], TARGET, 1) == []
