"""Manifests hold every entry once and in order, merged or not, and say the true range of their partitions."""

import random
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.table.row.generic_row import GenericRowDeserializer

from sluicegate.events.models import SnapshotRef
from sluicegate.lakes.drafts import draft_names
from sluicegate.lakes.paimon.entries import Entries
from sluicegate.lakes.paimon.manifests import FOLDER, MIN_COUNT, Manifests
from sluicegate.lakes.paimon.snapshots import Snapshot
from sluicegate.lakes.paimon.table import Table
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.paimon import reading

DAYS = pa.schema([pa.field("id", pa.int64()), pa.field("day", pa.string()), pa.field("hour", pa.int32())])
FILES = 200
SMALL = {"manifest.compression": "null", "manifest.target-file-size": "24 kb"}
"""A manifest of about 20 entries is full, and parts the runs of small ones."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> PaimonLake:
    return PaimonLake(tmp_path_factory.mktemp("warehouse"), DAYS, ["day", "hour"], SMALL)


@pytest.fixture(scope="module")
def entries(lake: PaimonLake) -> list[Entries]:
    """One entry for each of many partitions, neither sorted by their values nor without nulls."""
    order = random.Random(7).sample(range(FILES), FILES)
    days = [None if number % 11 == 0 else f"{number:03d}" for number in order]
    hours = [None if number % 7 == 0 else (number * 37) % FILES for number in order]
    event = lake.write(pa.record_batch({"id": order, "day": days, "hour": hours}, DAYS))
    committer = lake.committer()
    committer.inspect()
    found: list[Entries] = []
    for file in event.files:
        (checked,) = committer.check([event.model_copy(update={"files": (file,)})])
        assert isinstance(checked.content, Entries)
        found.append(checked.content)
    random.Random(8).shuffle(found)
    return found


def names(lake: PaimonLake, listed: list[dict[str, Any]]) -> list[str]:
    """The data files of manifests, in order."""
    return [
        entry["_FILE"]["_FILE_NAME"]
        for line in listed
        for entry in reading.records(lake.root, line["_FILE_NAME"])
    ]


def values(lake: PaimonLake, raw: bytes) -> list[Any]:
    fields = Table(lake.storage).newest().partition_keys_fields
    return list(GenericRowDeserializer.from_bytes(raw, fields).values)


def assert_ranges(lake: PaimonLake, line: dict[str, Any]) -> None:
    """The line says the lowest and highest value of each partition column, and the number of nulls."""
    inside = reading.records(lake.root, line["_FILE_NAME"])
    columns = list(zip(*(values(lake, entry["_PARTITION"]) for entry in inside), strict=True))
    known = [[value for value in column if value is not None] for column in columns]
    stats = line["_PARTITION_STATS"]
    assert values(lake, stats["_MIN_VALUES"]) == [min(column, default=None) for column in known]
    assert values(lake, stats["_MAX_VALUES"]) == [max(column, default=None) for column in known]
    assert stats["_NULL_COUNTS"] == [column.count(None) for column in columns]
    assert line["_NUM_ADDED_FILES"] == len(inside)
    assert line["_FILE_SIZE"] == (lake.root / FOLDER / line["_FILE_NAME"]).stat().st_size


def commit(lake: PaimonLake, head: Snapshot | None, entries: list[Entries]) -> Snapshot:
    """Write the manifests of a commit, and what of its snapshot the next commit reads."""
    draft = Manifests(lake.storage, Table(lake.storage).newest()).compose(
        head, entries, draft_names("t", "", "u", 1)
    )
    lake.storage.write(FOLDER, draft.files)
    number = head.ref.id + 1 if head is not None else 1
    lists = {"baseManifestList": draft.base.name, "deltaManifestList": draft.delta.name}
    return Snapshot(SnapshotRef(number, str(number)), lists)


def lines(lake: PaimonLake, head: Snapshot) -> list[dict[str, Any]]:
    return [
        line
        for which in ("baseManifestList", "deltaManifestList")
        for line in reading.records(lake.root, head.fields[which])
    ]


@pytest.mark.slow
@pytest.mark.parametrize("full_at", [(0,), (12,), (5, 20), (MIN_COUNT,), ()], ids=str)
def test_merging_keeps_what_stands_before_between_and_behind_the_runs(
    lake: PaimonLake, entries: list[Entries], full_at: tuple[int, ...]
) -> None:
    """Full manifests at these places are no part of a run; everything else is merged sooner or later."""
    head: Snapshot | None = None
    left, given, merged = list(entries), list[Entries](), 0
    for number in range(2 * MIN_COUNT + 8):
        size = 40 if number in full_at else 1
        now, left = left[:size], left[size:]
        given += now
        head = commit(lake, head, now)
        listed = lines(lake, head)
        merged += len(listed) < number + 1
        if number >= MIN_COUNT - 2:
            assert len(set(names(lake, listed))) == len(names(lake, listed)) == len(given)
    assert head is not None
    assert merged
    delta = commit(lake, None, given)
    assert names(lake, lines(lake, head)) == names(lake, lines(lake, delta))
    for line in lines(lake, head):
        assert_ranges(lake, line)
