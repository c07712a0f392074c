"""Entries that lie about their files never reach a manifest."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pypaimon.manifest.schema.manifest_entry import MANIFEST_ENTRY_SCHEMA

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.port import Absent, BadFiles, Refused
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.paimon_lake import PaimonLake


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLake:
    return PaimonLake(tmp_path)


def spoiled(event: FilesWritten, change: Callable[[bytes], bytes]) -> FilesWritten:
    (file,) = event.files
    return event.model_copy(update={"files": (file.model_copy(update={"metadata": change(file.metadata)}),)})


def edited(event: FilesWritten, **changes: Any) -> FilesWritten:
    """The event with an entry that says something else; keys of _FILE are looked up there."""

    def edit(raw: bytes) -> bytes:
        record = fastavro.schemaless_reader(BytesIO(raw), MANIFEST_ENTRY_SCHEMA)
        assert isinstance(record, dict)
        for key, value in changes.items():
            inside = record["_FILE"] if key in record["_FILE"] else record
            inside[key] = value
        out = BytesIO()
        fastavro.schemaless_writer(out, MANIFEST_ENTRY_SCHEMA, record)
        return out.getvalue()

    return spoiled(event, edit)


@pytest.mark.parametrize(
    "changes",
    [
        {"_KIND": 1},
        {"_VERSION": 3},
        {"_BUCKET": 1},
        {"_TOTAL_BUCKETS": 4},
        {"_ROW_COUNT": 5},
        {"_FILE_SIZE": 5},
        {"_SCHEMA_ID": 5},
        {"_LEVEL": 1},
        {"_FILE_NAME": "other.parquet"},
        {"_FILE_NAME": "../../escape.parquet"},
        {"_EXTERNAL_PATH": "file:///etc/passwd"},
        {"_EXTRA_FILES": ["extra"]},
        {"_FIRST_ROW_ID": 0},
    ],
)
def test_an_entry_that_contradicts_its_event_is_refused(lake: PaimonLake, changes: dict[str, Any]) -> None:
    bad = edited(lake.event([1]), **changes)
    stream = Stream(lake)
    with pytest.raises(BadFiles):
        stream.committer.check([bad])
    assert isinstance(stream.publish(1, None, [bad]), Refused)
    assert stream.ask(1) == Absent(None)


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[:-1],
        lambda raw: raw + b"\0",
        lambda raw: raw * 2,
        lambda raw: b"\xff" * 40,
    ],
)
def test_a_malformed_entry_is_refused(lake: PaimonLake, change: Callable[[bytes], bytes]) -> None:
    bad = spoiled(lake.event([1]), change)
    stream = Stream(lake)
    with pytest.raises(BadFiles):
        stream.committer.check([bad])
    assert isinstance(stream.publish(1, None, [bad]), Refused)


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_no_bytes_break_the_check(lake: PaimonLake, data: st.DataObject) -> None:
    event = lake.event([1])
    raw = bytearray(event.files[0].metadata)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        lake.committer().check([spoiled(event, lambda _: bytes(raw))])
    except BadFiles:
        return


def test_missing_and_torn_files_are_named(lake: PaimonLake) -> None:
    event = lake.event([1])
    path = lake.root / event.files[0].path
    committer = lake.committer()
    committer.check([event])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadFiles, match=r"data-.* bytes instead of"):
        committer.check([event])
    path.unlink()
    with pytest.raises(BadFiles, match=r"data-.* is not in"):
        committer.check([event])
