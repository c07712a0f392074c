"""The log is read without loading the table, whatever checkpoints and clean-up have left."""

import json
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from sluicegate.lakes.delta.log import Log, State
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import USER, Stream, with_commits
from tests.lakes.delta import making


def load(lake: DeltaLake) -> State:
    return Log(LocalStorage(lake.location)).load()


def committed(folder: Path, decisions: int) -> DeltaLake:
    lake = DeltaLake(folder)
    with_commits(lake, decisions)
    return lake


def forget_before(lake: DeltaLake, version: int) -> None:
    for name in os.listdir(lake.log):
        if name[:20].isdigit() and int(name[:20]) < version:
            (lake.log / name).unlink()


@pytest.mark.slow
def test_a_checkpoint_replaces_what_was_before_it(tmp_path: Path) -> None:
    lake = committed(tmp_path, 5)
    whole = load(lake)
    DeltaTable(lake.location, version=3).create_checkpoint()
    forget_before(lake, 3)
    state = load(lake)
    assert (state.metadata, state.protocol, state.txns) == (whole.metadata, whole.protocol, whole.txns)
    assert state.head.ref == whole.head.ref


def rows_of(checkpoint: Path) -> pa.Table:
    return pq.ParquetFile(checkpoint).read()


def in_parts(lake: DeltaLake, version: int, number: int) -> list[Path]:
    """Replace a checkpoint by one in parts."""
    single = lake.log / f"{version:020d}.checkpoint.parquet"
    rows = rows_of(single)
    single.unlink()
    parts = []
    for part in range(number):
        path = lake.log / f"{version:020d}.checkpoint.{part + 1:010d}.{number:010d}.parquet"
        pq.write_table(rows.take([row for row in range(rows.num_rows) if row % number == part]), path)
        parts.append(path)
    return parts


@pytest.mark.slow
def test_a_checkpoint_in_parts_counts_when_all_are_there(tmp_path: Path) -> None:
    lake = committed(tmp_path, 4)
    whole = load(lake)
    lake.table.create_checkpoint()
    parts = in_parts(lake, 4, 3)
    shutil.copytree(lake.root, tmp_path / "copy")
    forget_before(lake, 4)
    assert load(lake).txns == whole.txns
    parts[1].unlink()
    with pytest.raises(LakeUnavailable, match="version 0 is missing"):
        load(lake)
    # While the older versions are there, an incomplete checkpoint is none.
    (tmp_path / "copy" / "_delta_log" / parts[1].name).unlink()
    assert Log(LocalStorage(str(tmp_path / "copy"))).load().txns == whole.txns


def fields_of(rows: pa.Table, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        rows.column(kind).drop_null().to_pylist() if kind in rows.column_names else []
    )
    return found


def version_2(lake: DeltaLake, version: int, ending: str) -> None:
    """Replace a checkpoint by one of version 2, with its files in a sidecar."""
    single = lake.log / f"{version:020d}.checkpoint.parquet"
    rows = rows_of(single)
    single.unlink()
    (lake.log / "_sidecars").mkdir()
    sidecar = f"{uuid.uuid4()}.parquet"
    added = rows.select([name for name in ("add", "remove") if name in rows.column_names])
    pq.write_table(added, lake.log / "_sidecars" / sidecar)
    target = lake.log / f"{version:020d}.checkpoint.{uuid.uuid4()}.{ending}"
    described = {"path": sidecar, "sizeInBytes": 1, "modificationTime": 1}
    if ending == "json":
        (metadata,) = fields_of(rows, "metaData")
        maps = {"configuration": dict(metadata["configuration"] or []), "format": {"provider": "parquet"}}
        kept = [{"protocol": each} for each in fields_of(rows, "protocol")]
        kept += [{"metaData": {**metadata, **maps}}, *({"txn": each} for each in fields_of(rows, "txn"))]
        kept += [{"sidecar": described}, {"checkpointMetadata": {"version": version}}]
        target.write_text("\n".join(map(json.dumps, kept)), encoding="utf-8")
        return
    others = rows.select([name for name in rows.column_names if name not in ("add", "remove", "sidecar")])
    empty = [None] * (others.num_rows - 1)
    pq.write_table(others.append_column("sidecar", pa.array([described, *empty])), target)


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_a_checkpoint_of_version_2_is_read_with_its_sidecars(lake: DeltaLake, ending: str) -> None:
    stream = Stream(lake)
    event = lake.event([1])
    stream.add(1, event)
    stream.recorded = lake.committer().inspect().head
    stream.commit(2, [2])
    whole = load(lake)
    lake.table.create_checkpoint()
    version_2(lake, 2, ending)
    forget_before(lake, 2)
    assert load(lake).txns == whole.txns
    assert load(lake).metadata == whole.metadata
    (file,) = event.files
    assert lake.maintenance().file_status([file.path]) == {file.path: "referenced"}


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over_while_an_older_way_is_there(tmp_path: Path) -> None:
    lake = committed(tmp_path, 4)
    DeltaTable(lake.location, version=2).create_checkpoint()
    lake.table.create_checkpoint()
    (lake.log / f"{4:020d}.checkpoint.parquet").write_bytes(b"PAR1 is not enough")
    assert load(lake).version == 4
    forget_before(lake, 2)
    assert load(lake).txns[USER].version == 4
    forget_before(lake, 4)
    with pytest.raises(LakeUnavailable, match="Restore that file"):
        load(lake)


@pytest.mark.parametrize("hint", [b"", b"{", b'{"version": "x"}', b'{"version": 77}', b"[1]", b"\xff"])
def test_the_hint_of_the_last_checkpoint_decides_nothing(tmp_path: Path, hint: bytes) -> None:
    lake = committed(tmp_path, 2)
    (lake.log / "_last_checkpoint").write_bytes(hint)
    assert load(lake).version == 2
    stream = Stream(lake)
    if b"77" not in hint:
        stream.commit(3, [3])
        assert lake.ids() == [1, 2, 3]


def test_names_of_others_in_the_log_are_left_alone(tmp_path: Path) -> None:
    lake = committed(tmp_path, 2)
    for name in (
        "1.json",
        f"{1:020d}.crc",
        f".{3:020d}.json.tmp",
        f"{1:020d}.{2:020d}.compacted.json",
        f"{2:020d}.checkpoint.0000000001.9999999999.parquet",
        f"{2:020d}.checkpoint.0000000000.0000000001.parquet",
        "_staged_commits",
    ):
        (lake.log / name).write_bytes(b"?")
    assert load(lake).version == 2


BROKEN: Sequence[str] = (
    "no JSON",
    "[1]",
    '{"protocol":{"minReaderVersion":"1","minWriterVersion":2}}',
    '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"writerFeatures":[1]}}',
    '{"metaData":{"id":1}}',
    '{"metaData":{"id":"x","schemaString":"{}","partitionColumns":"id"}}',
    '{"metaData":{"id":"x","schemaString":"{}","configuration":[]}}',
    '{"txn":{"appId":"a","version":1.5}}',
    '{"txn":{"appId":"a","version":99999999999999999999}}',
    '{"txn":{"appId":"a","version":true}}',
    '{"txn":{"appId":null,"version":1}}',
    '{"txn":{"appId":"a","version":1,"lastUpdated":"now"}}',
    '{"domainMetadata":{"domain":"delta.rowTracking","configuration":7}}',
    "[" * 100_000,
)


@pytest.mark.parametrize("line", BROKEN, ids=lambda line: line[:40])
def test_a_line_that_is_no_action_stops_with_the_name_of_its_version(tmp_path: Path, line: str) -> None:
    lake = committed(tmp_path, 1)
    stream = Stream(lake)
    making.put(lake.root, 2, making.info(), line)
    for act in (lambda: stream.ask(2), lambda: lake.committer().inspect(), stream.committer.identity):
        with pytest.raises(LakeUnavailable, match=f"{2:020d}.json is no commit of Delta"):
            act()


STRANGE: Sequence[Mapping[str, Any] | str] = (
    "",
    "   ",
    '{"future":{"any":[1]},"add":null}',
    {"commitInfo": {"sluicegate.digest": 7, "sluicegate.watermark": "x", "inCommitTimestamp": {}}},
    {"commitInfo": {"sluicegate.watermark": [1], "sluicegate.decision": None}},
    {"txn": {"appId": USER + ".digest", "version": 5}},
    {"txn": {"appId": USER + ".mark.0", "version": -1, "lastUpdated": 1}},
    {"add": {"path": "../../txn", "stats": '{"txn":1}'}},
    {"domainMetadata": {"domain": "delta.rowTracking", "configuration": "no JSON", "removed": False}},
)


@pytest.mark.parametrize("line", STRANGE, ids=str)
def test_a_strange_line_harms_nothing(tmp_path: Path, line: Mapping[str, Any] | str) -> None:
    lake = committed(tmp_path, 1)
    stream = Stream(lake)
    making.put(lake.root, 2, making.info(), line)
    assert load(lake).version == 2
    assert lake.committer().inspect().newest_decision == 1
    stream.head(2)


def test_a_hole_in_the_log_stops_a_reader_that_starts(tmp_path: Path) -> None:
    lake = committed(tmp_path, 3)
    lake.commit_file(2).unlink()
    with pytest.raises(LakeUnavailable, match="version 2 is missing"):
        load(lake)
