"""Upkeep of a table beside its commits: copies of data files, and samples of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from sluicegate.events.files import stated_attempt
from sluicegate.events.models import FileInfo
from sluicegate.lakes.capabilities import Opened
from sluicegate.lakes.port import BadFiles, LakeUnavailable
from sluicegate.lakes.storage import Range, Storage

SAMPLE_FILES: Final = 64
"""Data files of one sample. It is taken by a command, beside the commits."""
_TRIES: Final = 3
_SHOWN: Final = 3
_END: Final = 4
"""Bytes at the end of a file that are read."""

T = TypeVar("T")


class Sampled(NamedTuple):
    """A data file of the newest snapshot."""

    storage: Storage
    path: str
    size: int


def spread(items: Sequence[T], most: int) -> list[T]:
    """Return at most so many items: the first ones, and others at equal distances."""
    if len(items) <= most:
        return list(items)
    first = most // 2
    rest, wanted = items[first:], most - first
    return [*items[:first], *(rest[at * (len(rest) - 1) // (wanted - 1)] for at in range(wanted))]


def first_of(items: Iterable[T], most: int = SAMPLE_FILES) -> list[T]:
    """Return at most so many items from the beginning."""
    return list(islice(items, most))


def attempt_files(storage: Storage, folder: str) -> Iterator[str]:
    """Yield the files below a folder whose names state their attempt.

    They are in folders of partitions and buckets. Raises LakeUnavailable.
    """
    folders = [folder]
    while folders:
        at = folders.pop()
        for name in storage.names(at or "."):
            path = f"{at}/{name}" if at else name
            if stated_attempt(name) is not None:
                yield path
            elif "=" in name or name.startswith("bucket-"):
                folders.append(path)


def sized(sizes: Callable[[Sequence[str]], Sequence[int | None]], paths: Iterable[str]) -> dict[str, int]:
    """Return the sizes of files, in bytes; a missing one is left out. Raises LakeUnavailable."""
    found = list(paths)
    return {path: size for path, size in zip(found, sizes(found), strict=True) if size is not None}


def open_files(head: Callable[[], object], sample: Callable[[], Sequence[Sampled]]) -> Opened:
    """Open a sample of the data files.

    `head` identifies the newest snapshot: a file that is missing may have left the table meanwhile, so then
    another sample is taken. Raises LakeUnavailable.
    """
    for _ in range(_TRIES):
        before = head()
        files = sample()
        problems = tuple(text for each in files if (text := _problem(each)) is not None)
        if not problems or head() == before:
            break
    return Opened(len(files), problems)


def format_problems(opened: Opened) -> str:
    """Return the first problems as one text."""
    shown = opened.problems[:_SHOWN]
    more = len(opened.problems) - len(shown)
    return " ".join(
        [*(f"{each}." for each in shown), *([f"{more} more files have problems."] if more else [])]
    )


def _problem(file: Sampled) -> str | None:
    """Return what is wrong with a file, None if it can be read to its end."""
    name = f"the data file {file.path} of {file.storage.uri}"
    size = file.storage.size(file.path)
    if size is None:
        return f"{name} is not there. {_RESTORE}"
    if size != file.size:
        return f"{name} has {size} bytes instead of {file.size}. {_RESTORE}"
    length = min(_END, size)
    try:
        (end,) = file.storage.read_ranges([Range(file.path, size - length, length)]) if length else (b"",)
    except (BadFiles, LakeUnavailable) as error:
        return f"{name} cannot be read: {error}"
    return None if end is not None and len(end) == length else f"{name} cannot be read. {_RESTORE}"


_RESTORE: Final = (
    "Readers of the newest snapshot fail. Mount its storage, or restore the file from a backup. If its rows "
    "are lost, remove it from the table with a tool of the format: no coordinator adds a row a second time"
)


# Copies of files from another table of the format, for a rebuild.


def require_unchanged(source: Storage, file: FileInfo, removal: str) -> None:
    """Raise BadFiles if a file to copy is not there as described. `removal`: what could have removed it."""
    size = source.size(file.path)
    if size is None:
        raise BadFiles(
            f"the file {file.path} is not in {source.uri} any more: {removal}, it was deleted, or the table "
            "was moved"
        )
    if size != file.size:
        raise BadFiles(f"the file {file.path} has {size} bytes instead of {file.size}")


def copy_files(source: Storage, target: Storage, files: Sequence[FileInfo]) -> None:
    """Copy the files that the target lacks, and make all of them durable there. Raises LakeUnavailable."""
    for file in files:
        if target.size(file.path) != file.size:
            target.copy(source, file.path)
    target.settle_files([file.path for file in files])
