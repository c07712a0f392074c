"""Selection of manifests to merge, so that lists and read times do not grow with every commit.

Manifests are merged in tiers by size. Each byte is copied a few times at most, and one commit never copies
much more than a full manifest. Only adjacent manifests without deletions are merged. This keeps the order of
entries, which determines the effect of a deletion.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

MIN_COUNT: Final = 30
"""Number of manifests of a tier that are merged; Paimon's own default of `manifest.merge-min-count`."""

_TIERS: Final = (64, 8, 1)
"""Divisors of the target size, smallest tier first."""


def plan(metas: Sequence[dict[str, Any]], target: int, excluded: Collection[str]) -> list[tuple[int, int]]:
    """Return the runs to merge as (start, end) in `metas`, in order and disjoint."""
    runs: list[tuple[int, int]] = []
    start = 0
    while start < len(metas):
        tier = _tier(metas[start], target, excluded)
        end, size = start + 1, int(metas[start]["_FILE_SIZE"])
        while tier is not None and end < len(metas) and size < target:
            if _tier(metas[end], target, excluded) != tier:
                break
            size += int(metas[end]["_FILE_SIZE"])
            end += 1
        if tier is not None and end - start > 1 and (end - start >= MIN_COUNT or size >= target):
            runs.append((start, end))
        start = end
    return runs


def _tier(meta: dict[str, Any], target: int, excluded: Collection[str]) -> int | None:
    """Return the manifest's tier, None if it must not be merged."""
    if (
        meta["_NUM_DELETED_FILES"] != 0
        or meta["_VERSION"] != 2
        or meta.get("_EXTRA_FILES")
        or meta.get("_MIN_ROW_ID") is not None
        or meta["_FILE_NAME"] in excluded
        or not _has_stats(meta["_PARTITION_STATS"])
    ):
        return None
    for tier, divisor in enumerate(_TIERS):
        if meta["_FILE_SIZE"] * divisor < target:
            return tier
    return None


def _has_stats(stats: dict[str, Any]) -> bool:
    nulls = stats["_NULL_COUNTS"]
    return bool(stats["_MIN_VALUES"]) and nulls is not None and None not in nulls
