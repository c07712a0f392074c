"""Footers of Parquet files that describe no rows of their own in an event: reading, and checks.

The bytes come from outside. A footer counts as much as the file itself: every reader of Parquet believes it.
Everything else that an event claims about such a file is compared with the footer.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from sluicegate.events.models import FileInfo
from sluicegate.lakes.footer_bytes import check_footer
from sluicegate.lakes.port import BadFiles, LakeUnavailable
from sluicegate.lakes.storage import Range, Storage

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_TAIL: Final = 64 << 10
"""Bytes at the end of a file that are read at first. Most footers are shorter."""
_LONGEST: Final = 4 << 20
"""Bytes of a footer."""
_ENDING: Final = 8
"""Bytes after the footer: its length, and the magic number."""
_SMALLEST: Final = 12
"""Bytes of the shortest file. A pipe or a device has the size 0, and is never opened."""
_AT_ONCE: Final = 64
"""Files whose ends are in memory together."""


def read_footers(storage: Storage, files: Sequence[FileInfo]) -> Iterator["pq.FileMetaData"]:
    """Yield the footers of files whose sizes were checked, in order, each with the rows that were claimed.

    Raises BadFiles or LakeUnavailable.
    """
    for start in range(0, len(files), _AT_ONCE):
        some = files[start : start + _AT_ONCE]
        for file in some:
            if file.size < _SMALLEST:
                raise BadFiles(f"the file {file.path} is no Parquet file: it has only {file.size} bytes")
        for file, end in zip(some, _ends(storage, some, [_TAIL] * len(some)), strict=True):
            length = _footer_length(file, end)
            known = length + _ENDING <= len(end)
            whole = end if known else _ends(storage, [file], [length + _ENDING])[0]
            yield _parsed(file, whole[-length - _ENDING :])


def _ends(storage: Storage, files: Sequence[FileInfo], lengths: Sequence[int]) -> list[bytes]:
    shortened = [min(file.size, length) for file, length in zip(files, lengths, strict=True)]
    ranges = [
        Range(file.path, file.size - length, length) for file, length in zip(files, shortened, strict=True)
    ]
    ends = storage.read_ranges(ranges)
    for file, length, end in zip(files, shortened, ends, strict=True):
        if end is None or len(end) != length:
            raise BadFiles(f"the file {file.path} was changed or deleted while it was read. Write it again")
    return [end for end in ends if end is not None]


def _footer_length(file: FileInfo, end: bytes) -> int:
    if end[-len(_MAGIC) :] == _ENCRYPTED:
        raise BadFiles(f"the file {file.path} has an encrypted footer. Write it without encryption")
    if end[-len(_MAGIC) :] != _MAGIC:
        raise BadFiles(f"the file {file.path} is no whole Parquet file: it does not end as one")
    length = int.from_bytes(end[-_ENDING : -len(_MAGIC)], "little")
    if not 0 < length <= min(_LONGEST, file.size - _SMALLEST):
        raise BadFiles(
            f"the footer of {file.path} has {length} bytes; at most {_LONGEST} are read, and no more than "
            "the file has. Write fewer row groups"
        )
    return length


def _parsed(file: FileInfo, footer: bytes) -> "pq.FileMetaData":
    """Parse a footer with its ending, and check that it fits the file. Raises BadFiles."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        check_footer(footer[:-_ENDING])
        found = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
        problem = _problem(found, file, file.size - len(footer))
    except LakeUnavailable:
        raise
    except Exception as error:  # malformed bytes may raise any error in the parser
        raise BadFiles(f"the footer of {file.path} cannot be read: {error}") from error
    if problem is not None:
        raise BadFiles(f"the file {file.path} {problem}")
    return found


def _problem(footer: "pq.FileMetaData", file: FileInfo, end: int) -> str | None:
    """Return the first contradiction between a footer, its file and the event. `end`: of the data."""
    if footer.num_rows != file.rows:
        return f"has {footer.num_rows} rows by its footer, and {file.rows} by the event. Correct the event"
    if not file.rows:
        return "has no rows. Leave it out of the event"
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    if sum(group.num_rows for group in groups) != file.rows or any(group.num_rows < 1 for group in groups):
        return f"has row groups whose rows do not add up to its {file.rows}. Write it again"
    leaves = [footer.schema.column(number) for number in range(footer.num_columns)]
    for group in groups:
        for number, leaf in enumerate(leaves):
            chunk = group.column(number)
            if chunk.file_path:
                return f"has the values of {leaf.path} in another file. Write them into this one"
            first = chunk.data_page_offset
            if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
                first = min(first, chunk.dictionary_page_offset)
            if not len(_MAGIC) <= first <= first + chunk.total_compressed_size <= end:
                return f"names pages of {leaf.path} outside of its data. Write it again"
            if not leaf.max_repetition_level and chunk.num_values != group.num_rows:
                return f"has {chunk.num_values} values of {leaf.path} for {group.num_rows} rows"
    return None
