"""The path in an encoded `data_file` record, read and replaced without decoding the rest."""

from typing import Final

from sluicegate.lakes.avro import read_long, write_long

_DATA: Final = b"\x00"
"""Content of the record: a data file. It is the first field, and the path is the second."""


def path_in(record: bytes) -> str:
    """Return the path in the record of a data file. Raises ValueError if it cannot be read."""
    start, end = _borders(record)
    return record[start:end].decode()


def with_path(record: bytes, path: str) -> bytes:
    """Return the record with another path. Raises ValueError if it cannot be read."""
    _, end = _borders(record)
    raw = path.encode()
    return _DATA + write_long(len(raw)) + raw + record[end:]


def _borders(record: bytes) -> tuple[int, int]:
    if not record.startswith(_DATA):
        raise ValueError("it is not the record of a data file")
    length, start = read_long(record, len(_DATA))
    end = start + length
    if length < 0 or end > len(record):
        raise ValueError("it ends inside of its path")
    return start, end
