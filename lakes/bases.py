"""Proof that a commit builds on what is there: files that the head needs, and that no commit reads again."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sluicegate.lakes.port import LakeUnavailable

_AT_ONCE: Final = 32
"""Files that one commit looks at again: two rounds of requests side by side in an object store."""


class Base:
    """The manifests of a table's head, each of which a committer has seen.

    The first commit looks at all. Each later one looks at those that are new, and at some of the others in
    turn: a table of 100 manifests is seen within four commits.
    """

    def __init__(self, folder: str = "") -> None:
        """`folder`: where the names of files begin, for people."""
        self._folder = folder
        self._seen: list[str] = []
        """Manifests that were seen, the one first that was not looked at for the longest time."""

    def require(
        self,
        always: Iterable[str],
        manifests: Sequence[str],
        sizes: Callable[[Sequence[str]], Sequence[int | None]],
    ) -> None:
        """Look at files, with one call of `sizes`. Raises LakeUnavailable if one is missing.

        `always`: files that each commit looks at.
        """
        needed, seen = set(manifests), set(self._seen)
        kept = [name for name in self._seen if name in needed]
        fresh = [name for name in manifests if name not in seen]
        again = kept[: max(0, _AT_ONCE - len(fresh))]
        asked = [*always, *fresh, *again]
        for name, size in zip(asked, sizes(asked), strict=True):
            if size is None:
                raise missing(f"{self._folder}{name}")
        self._seen = [*kept[len(again) :], *again, *fresh]


def missing(name: str) -> LakeUnavailable:
    """Return the error of a file of the head that is missing."""
    return LakeUnavailable(
        f"{name}, which the table's head needs, is not there, so nothing is committed on it. Mount the "
        "storage of the table, or restore the file"
    )
