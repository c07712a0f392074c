"""Parts fit, and together they are the whole."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.files import HEADROOM, FileTooLarge, split_files
from sluicegate.events.models import LONGEST_METADATA, MOST_PARTITION_VALUE, FileInfo, FilesWritten
from sluicegate.kafka.topics import MAX_MESSAGE_BYTES

MILLIS = st.none() | st.integers(-(2**63), 2**63 - 1)
FILES = st.builds(
    FileInfo,
    path=st.from_regex(r"[a-zäß€𝄞\"\\]{1,20}", fullmatch=True),
    size=st.integers(0, 2**50),
    rows=st.integers(0, 2**40),
    partition=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
    min_event_time=MILLIS,
    max_event_time=MILLIS,
    metadata=st.binary(max_size=200),
)


def body_of(*files: FileInfo) -> FilesWritten:
    return FilesWritten(format="paimon", format_version=1, location="file:/ä", schema_id=3, files=files)


def length(body: FilesWritten) -> int:
    return len(body.model_dump_json().encode())


@pytest.mark.slow
@given(st.lists(FILES, min_size=1, max_size=30), st.integers(900, 5000))
def test_parts_fit_and_are_the_whole(files: list[FileInfo], room: int) -> None:
    body = body_of(*files)
    parts = split_files(body, HEADROOM + room)
    assert [file for part in parts for file in part.files] == files
    for part in parts:
        assert part.model_copy(update={"files": body.files}) == body
        assert length(part) <= room
    for part, following in pairwise(parts):
        assert part.files
        assert length(body_of(*part.files, following.files[0])) > room, "the part could have held more"


@pytest.mark.slow
@given(st.lists(FILES, min_size=1, max_size=5))
def test_a_body_that_fits_exactly_is_not_split(files: list[FileInfo]) -> None:
    body = body_of(*files)
    assert split_files(body, HEADROOM + length(body)) == [body]
    if len(files) > 1:
        assert len(split_files(body, HEADROOM + length(body) - 1)) == 2


def test_a_file_too_large_for_a_message_is_named() -> None:
    large = FileInfo(path="a/large.parquet", size=1, rows=1, metadata=b"x" * 9000)
    small = FileInfo(path="small", size=1, rows=1)
    with pytest.raises(FileTooLarge, match=r"a/large\.parquet takes \d+ bytes.*raise max\.message\.bytes"):
        split_files(body_of(small, large, small), 10_000)
    with pytest.raises(FileTooLarge, match="has room for 0"):
        split_files(body_of(small), 10)


def test_the_longest_metadata_fits_into_a_message_of_the_default_size() -> None:
    partition = {f"c{number}": "x" * MOST_PARTITION_VALUE for number in range(100)}
    metadata = b"x" * LONGEST_METADATA
    file = FileInfo(path="x" * 2048, size=2**50, rows=2**40, partition=partition, metadata=metadata)
    assert len(split_files(body_of(file), MAX_MESSAGE_BYTES)) == 1
    with pytest.raises(ValidationError):
        FileInfo(path="x", size=1, rows=1, metadata=metadata + b"x")


def test_the_headroom_holds_the_longest_key_and_headers() -> None:
    name = "x" * 200
    place = (name, name, "x" * 64, 10**18 - 1)
    envelope = Envelope("𝄞" * 64, EventType.FILES_WRITTEN, *place, name, "𝄞" * 64)
    message = encode_event(envelope._replace(files=1), body_of(FileInfo(path="a", size=1, rows=1)), 0)
    framing = 61 + 20 + sum(4 + len(key) + len(value) for key, value in message.headers)
    assert len(message.key) + framing < HEADROOM
