"""Selection of manifests to merge, so that lists and read times do not grow with every commit.

Only adjacent manifests without deletions are merged. This keeps the order of entries, which determines the
effect of a deletion.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from sluicegate.lakes.tiers import runs

MIN_COUNT: Final = 30
"""Number of manifests of a tier that are merged; Paimon's own default of `manifest.merge-min-count`."""


def plan(metas: Sequence[dict[str, Any]], target: int, excluded: Collection[str]) -> list[tuple[int, int]]:
    """Return the runs to merge as (start, end) in `metas`, in order and disjoint."""
    return runs([_size(meta, excluded) for meta in metas], target, MIN_COUNT)


def _size(meta: dict[str, Any], excluded: Collection[str]) -> int | None:
    """Return the manifest's size in bytes, None if it must not be merged."""
    if (
        meta["_NUM_DELETED_FILES"] != 0
        or meta["_VERSION"] != 2
        or meta.get("_EXTRA_FILES")
        or meta.get("_MIN_ROW_ID") is not None
        or meta["_FILE_NAME"] in excluded
        or not _has_stats(meta["_PARTITION_STATS"])
    ):
        return None
    return int(meta["_FILE_SIZE"])


def _has_stats(stats: dict[str, Any]) -> bool:
    nulls = stats["_NULL_COUNTS"]
    return bool(stats["_MIN_VALUES"]) and nulls is not None and None not in nulls
