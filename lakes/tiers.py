"""Selection of small files to merge, in tiers by size.

Each byte is copied a few times at most, and one commit never copies much more than one full file.
"""

from collections.abc import Sequence
from typing import Final

_TIERS: Final = (64, 8, 1)
"""Divisors of the target size, smallest tier first."""
_SHARE: Final = 8
"""Divisor of the least number of files of a group, for the higher tiers."""


def runs(sizes: Sequence[int | None], target: int, least: int) -> list[tuple[int, int]]:
    """Return the runs to merge as (start, end), in order and disjoint. A size of None is never merged.

    A run is adjacent, of one tier, and has at least `least` files or `target` bytes.
    """
    found: list[tuple[int, int]] = []
    start = 0
    while start < len(sizes):
        tier = _tier(sizes[start], target)
        end, size = start + 1, sizes[start] or 0
        while tier is not None and end < len(sizes) and size < target and _tier(sizes[end], target) == tier:
            size += sizes[end] or 0
            end += 1
        if tier is not None and end - start > 1 and (end - start >= least or size >= target):
            found.append((start, end))
        start = end
    return found


def groups(sizes: Sequence[int], target: int, least: int) -> list[list[int]]:
    """Return the files to merge, as groups of their indexes, where the order of files has no meaning.

    A group is of one tier. It has at least `least` files of the lowest tier, or an eighth of that of a higher
    one, or `target` bytes. So fewer than 5/4 of `least` files stay below the target.
    """
    found: list[list[int]] = []
    for tier in range(len(_TIERS)):
        enough = max(least if tier == 0 else least // _SHARE, 2)
        group: list[int] = []
        bytes_of_group = 0
        for at in [at for at, size in enumerate(sizes) if _tier(size, target) == tier]:
            group.append(at)
            bytes_of_group += sizes[at]
            if bytes_of_group >= target and len(group) > 1:
                found.append(group)
                group, bytes_of_group = [], 0
        if len(group) >= enough:
            found.append(group)
    return found


def _tier(size: int | None, target: int) -> int | None:
    """Return the tier of a size; None if such a file must not be merged."""
    if size is None:
        return None
    return next((tier for tier, divisor in enumerate(_TIERS) if size * divisor < target), None)
