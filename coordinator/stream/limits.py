"""Size limits of one commit: a region over a limit stays at its position, with a reason; nothing is lost.

The limits only exclude a region from the proposals of this coordinator. A decision in the log is executed
independent of its size. So two coordinators with different limits still commit the same content.
"""

from collections.abc import Callable, Iterator, Mapping

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.effects import CheckFiles
from sluicegate.coordinator.core.ledger import Checkpoint
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.settings.units import words_of_bytes


def over_limits(
    stream: str, settings: StreamSettings, book: Book, effect: CheckFiles, size_of: Callable[[int], int]
) -> dict[str, str]:
    """Return the regions to check that are over a limit, each with the reason.

    `size_of` returns the bytes of the event at an offset.
    """
    wanted = [part.region for part in effect.parts]
    problems = {
        region: reason
        for region in wanted
        if (reason := _too_many_files(stream, region, settings.max_files_per_checkpoint, book)) is not None
    }
    # The largest first: excluding few large regions leaves the most regions in the commit.
    pending = {region: _pending(book, region, size_of) for region in book.state.regions}
    total, limit = sum(pending.values()), settings.max_pending_bytes
    for region in sorted(wanted, key=lambda each: -pending.get(each, 0)):
        if total <= limit:
            break
        total -= pending.get(region, 0)
        problems.setdefault(region, _too_many_bytes(stream, region, pending, limit))
    return problems


def _too_many_files(stream: str, region: str, limit: int, book: Book) -> str | None:
    for number, entry in _sealed(book, region):
        files = sum(part.files for part in entry.named())
        if files > limit:
            return (
                f"region {region}: checkpoint {number} has {files} files, and one may have {limit}; it is "
                f"not lost. If that is meant, raise streams.{stream}.max_files_per_checkpoint in the "
                "settings of all coordinators and restart them; if not, have the job write fewer files, and "
                f"rewind the region: sluicegate rewind --stream {stream} --region {region} "
                "--checkpoint-location ..."
            )
    return None


def _too_many_bytes(stream: str, region: str, pending: Mapping[str, int], limit: int) -> str:
    size, whole = pending.get(region, 0), sum(pending.values())
    return (
        f"region {region}: its events that wait for a commit have {words_of_bytes(size)}, and those of the "
        f"whole stream may have {words_of_bytes(limit)} in one commit; they are not lost. Raise streams."
        f"{stream}.max_pending_bytes above {words_of_bytes(whole)}, which is what waits now, in the settings "
        "of all coordinators, and their memory to several times of it, and restart them: then it is committed"
    )


def _pending(book: Book, region: str, size_of: Callable[[int], int]) -> int:
    return sum(size_of(part.offset) for _, entry in _sealed(book, region) for part in entry.named())


def _sealed(book: Book, region: str) -> Iterator[tuple[int, Checkpoint]]:
    for _, number, entry in book.sealed(region):
        yield number, entry
