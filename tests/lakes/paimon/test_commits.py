"""The content of a commit, to the byte where it matters, and where the library would put files."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.table.file_store_table import FileStoreTable
from pypaimon.table.row.generic_row import GenericRow
from pypaimon.write.table_commit import StreamTableCommit

from sluicegate.lakes.avro import Container, Header
from sluicegate.lakes.paimon.entries import partition_folder
from sluicegate.lakes.paimon.manifests import Manifests
from sluicegate.lakes.paimon.table import Table
from sluicegate.lakes.port import Published
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.paimon import reading

EVENTS = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.string()),
        ("hour", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("note", pa.string()),
        ("amount", pa.decimal128(20, 2)),
    ]
)


def batch(count: int = 6) -> pa.RecordBatch:
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return pa.record_batch(
        {
            "id": list(range(count)),
            "day": ["2026-01-01", "a/b=c%", None] * (count // 3),
            "hour": pa.array([index % 2 for index in range(count)], pa.int32()),
            "at": [start + datetime.timedelta(minutes=index) for index in range(count)],
            "note": [None if index % 2 else "n" * index for index in range(count)],
            "amount": pa.array(range(count), pa.decimal128(20, 2)),
        },
        schema=EVENTS,
    )


@pytest.mark.slow
def test_a_commit_reads_as_one_of_pypaimon_does(tmp_path: Path) -> None:
    """The same files committed by both: every list, manifest and snapshot says the same."""
    ours = PaimonLake(tmp_path / "ours", EVENTS, ["day", "hour"])
    theirs = PaimonLake(tmp_path / "theirs", EVENTS, ["day", "hour"], {"metadata.stats-mode": "full"})
    for decision in (1, 2, 3):
        table = theirs.table
        write = table.new_stream_write_builder().new_write()
        write.write_arrow(pa.Table.from_batches([batch()]))
        StreamTableCommit(table, "stream-a").commit(
            write.prepare_commit(decision), decision, snapshot_properties={"any": "thing"}
        )
        stream = Stream(ours)
        event = ours.write(batch())
        assert isinstance(stream.publish(decision, stream.recorded, [event]), Published)
    for number in (1, 2, 3):
        left, right = reading.snapshot(ours.root, number), reading.snapshot(theirs.root, number)
        assert list(left) == list(right)
        differing = {key for key in left if left[key] != right[key]}
        assert differing <= {
            "uuid", "timeMillis", "properties", "writerVersion", "baseManifestList", "deltaManifestList",
            "baseManifestListSize", "deltaManifestListSize",
        }  # fmt: skip
        assert comparable(reading.manifests(ours.root, number)) == comparable(
            reading.manifests(theirs.root, number)
        )
        assert comparable(reading.entries(ours.root, number)) == comparable(
            reading.entries(theirs.root, number)
        )


def comparable(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without what differs from one write to the next: names, times, sizes."""
    if found and "_FILE" in found[0]:
        found = [{**record, **record["_FILE"], "_FILE": None} for record in found]
    passing = {"_FILE_NAME", "_FILE_SIZE", "_CREATION_TIME"}
    return [{key: value for key, value in record.items() if key not in passing} for record in found]


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["zstd", "null", "deflate", "snappy"])
def test_the_tables_codec_is_used_where_it_can_be(tmp_path: Path, codec: str) -> None:
    lake = PaimonLake(tmp_path, options={"manifest.compression": codec})
    stream = Stream(lake)
    for decision in range(1, 33):
        stream.commit(decision, [decision])
        if decision % 10 == 0:
            lake.foreign([1_000 + decision])
    assert lake.ids() == [*range(1, 33), 1_010, 1_020, 1_030]
    name = reading.manifests(lake.root, 1)[0]["_FILE_NAME"]
    written = Container((lake.root / "manifest" / name).read_bytes()).codec
    assert written == {"zstd": "zstandard", "snappy": "zstandard"}.get(codec, codec)


def test_our_headers_are_pypaimons(lake: PaimonLake) -> None:
    """Otherwise lists would be decoded and written anew in every commit."""
    lake.foreign([1])
    manifests = Manifests(lake.storage, Table(lake.storage).newest())
    of = reading.snapshot(lake.root, 1)
    listed = Container((lake.root / "manifest" / of["deltaManifestList"]).read_bytes())
    name = reading.manifests(lake.root, 1)[0]["_FILE_NAME"]
    manifest = Container((lake.root / "manifest" / name).read_bytes())
    headers: tuple[Header, Header] = (manifests._lists, manifests._entries)
    assert headers[0].matches(listed)
    assert headers[1].matches(manifest)


COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("name", pa.string()), ("on", pa.bool_())])


@pytest.mark.parametrize(
    "options",
    [{}, {"partition.default-name": "nobody"}, {"partition.legacy-name": "false"}],
    ids=["plain", "default name", "no legacy names"],
)
@pytest.mark.parametrize(
    "values",
    [
        [datetime.date(2013, 1, 31), "EWR", True],
        [datetime.date(1969, 12, 31), "a/b=c d", False],
        [None, "", None],
        [datetime.date(2000, 2, 29), "é:%", True],
    ],
    ids=["plain", "escaped", "nothing", "letters"],
)
def test_partitions_are_where_the_library_puts_them(
    tmp_path: Path, options: dict[str, str], values: list[object]
) -> None:
    lake = PaimonLake(tmp_path, COLUMNS, ["day", "name", "on"], options)
    own, theirs = Table(lake.storage).newest(), FileStoreTable.from_path(lake.location)
    row = GenericRow(values, theirs.partition_keys_fields)
    assert partition_folder(own, row, 0) == partition_folder(theirs, row, 0)
    assert own.options.manifest_target_size() == theirs.options.manifest_target_size()
    assert own.options.manifest_compression() == theirs.options.manifest_compression()
