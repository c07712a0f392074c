"""The contract of tags, for each format that has them: made once, never moved, read by another product."""

import time
from pathlib import Path
from typing import Any

import pytest

from sluicegate.events.models import SnapshotRef
from sluicegate.lakes.capabilities import (
    MakesTags,
    SnapshotExpired,
    Tag,
    TagAnswer,
    TagMade,
    TagTaken,
    TagThere,
)
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.maintenance import make_tag as tag_iceberg
from sluicegate.lakes.iceberg.metadata import Metadata
from sluicegate.lakes.paimon.maintenance import make_tag
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage import Content
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.conftest import lake_of
from tests.contracts.lakes.harness import Lake, Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.iceberg_rest_lake import ALL_ICEBERG
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.contracts.lakes.paimon_objects import PAIMON

DAY = 86_400_000


@pytest.fixture(params=[*PAIMON, *ALL_ICEBERG])
def tagged(request: pytest.FixtureRequest, tmp_path: Path) -> PaimonLake | IcebergLake:
    lake = lake_of(request.param, request, tmp_path)
    assert isinstance(lake, PaimonLake | IcebergLake)
    return lake


def make(lake: Lake, name: str, ref: SnapshotRef, decision: int, retained: int | None = None) -> TagAnswer:
    """Make a tag, as a process does that has just started."""
    maintenance = lake.maintenance()
    assert isinstance(maintenance, MakesTags)
    return maintenance.make_tag(Tag(name, ref, decision, retained))


def read(lake: PaimonLake | IcebergLake, name: str) -> list[int]:
    """Return the rows as of a tag, read by the format's own library."""
    if isinstance(lake, IcebergLake):
        found = lake.table.scan(snapshot_id=lake.table.refs()[name].snapshot_id).to_arrow()
    else:
        builder = lake.table.copy({"scan.tag-name": name}).new_read_builder()
        found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return sorted(found.column("id").to_pylist())


def by_another(lake: PaimonLake | IcebergLake, name: str, ref: SnapshotRef) -> None:
    """Make a tag as another product does."""
    if isinstance(lake, IcebergLake):
        refer(lake, name, ref, "tag")
    else:
        lake.table.create_tag(name, ref.id)


def refer(lake: IcebergLake, name: str, ref: SnapshotRef, kind: str) -> None:
    reference = {"snapshot-id": int(ref.identity), "type": kind}
    lake.edit(lambda fields: fields["refs"].update({name: reference}))


@pytest.mark.slow
@pytest.mark.parametrize("retained", [None, 30 * DAY])
def test_a_tag_is_read_by_another_product_while_commits_go_on(
    tagged: PaimonLake | IcebergLake, retained: int | None
) -> None:
    stream = Stream(tagged)
    first = stream.commit(1, [1])
    second = stream.commit(2, [2])
    assert make(tagged, "2013-01-01", first, 1, retained) == TagMade()
    stream.commit(3, [3])
    assert make(tagged, "2013-01-02 05", second, 2, retained) == TagMade()
    stream.commit(4, [4])
    assert read(tagged, "2013-01-01") == [1]
    assert read(tagged, "2013-01-02 05") == [1, 2]
    assert tagged.ids() == [1, 2, 3, 4]
    assert len(tagged.maintenance().history().commits) == 4


@pytest.mark.slow
def test_an_old_snapshot_is_kept_as_long_as_a_new_one(tmp_path: Path) -> None:
    """Tags of one cut over several tables end together. Iceberg counts from the time of the snapshot."""
    lake = IcebergLake(tmp_path)
    ref = Stream(lake).commit(1, [1])

    def age(fields: dict[str, Any]) -> None:
        for each in fields["snapshots"]:
            each["timestamp-ms"] -= 40 * DAY

    lake.edit(age)
    before = time.time_ns() // 1_000_000
    assert make(lake, "day", ref, 1, 30 * DAY) == TagMade()
    (tag,) = [each for name, each in lake.fields()["refs"].items() if name == "day"]
    ends = lake.fields()["snapshots"][0]["timestamp-ms"] + tag["max-ref-age-ms"]
    assert before + 30 * DAY <= ends <= time.time_ns() // 1_000_000 + 30 * DAY


@pytest.mark.slow
@pytest.mark.parametrize("retained", [None, 30 * DAY])
def test_a_repetition_finds_the_tag_and_another_snapshot_does_not_get_it(
    tagged: PaimonLake | IcebergLake, retained: int | None
) -> None:
    stream = Stream(tagged)
    first, second = stream.commit(1, [1]), stream.commit(2, [2])
    assert make(tagged, "day", first, 1, retained) == TagMade()
    assert make(tagged, "day", first, 1, retained) == TagThere()
    taken = make(tagged, "day", second, 2, retained)
    assert isinstance(taken, TagTaken)
    assert taken.holder.startswith("a tag of snapshot ")
    assert read(tagged, "day") == [1]


@pytest.mark.slow
def test_a_tag_of_another_product_counts_if_it_has_the_snapshot(tagged: PaimonLake | IcebergLake) -> None:
    stream = Stream(tagged)
    first, second = stream.commit(1, [1]), stream.commit(2, [2])
    by_another(tagged, "theirs", first)
    assert make(tagged, "theirs", first, 1) == TagThere()
    assert isinstance(make(tagged, "theirs", second, 2), TagTaken)


@pytest.mark.slow
def test_a_snapshot_that_has_expired_gets_no_tag(tagged: PaimonLake | IcebergLake) -> None:
    stream = Stream(tagged)
    first = stream.commit(1, [1])
    stream.commit(2, [2])
    tagged.expire(1)
    assert make(tagged, "late", first, 1) == SnapshotExpired()


@pytest.mark.slow
def test_a_tag_is_found_after_its_snapshot_has_expired(tmp_path: Path) -> None:
    """In Iceberg, a snapshot with a tag does not expire."""
    lake = PaimonLake(tmp_path)
    stream = Stream(lake)
    refs = [stream.commit(1, [1]), stream.commit(2, [2])]
    for ref, retained in zip(refs, (None, DAY), strict=True):
        make(lake, f"t{ref.id}", ref, ref.id, retained)
    stream.commit(3, [3])
    lake.expire(1)
    for ref in refs:
        assert make(lake, f"t{ref.id}", ref, ref.id) == TagThere()
        assert isinstance(make(lake, f"t{ref.id}", SnapshotRef(ref.id, "other"), 0), TagTaken)


@pytest.mark.slow
def test_a_branch_is_no_tag(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path, 2)
    ref = Stream(lake).commit(1, [1])
    refer(lake, "audit", ref, "branch")
    taken = make(lake, "audit", ref, 1)
    assert isinstance(taken, TagTaken)
    assert taken.holder.startswith("a branch of snapshot ")


def test_a_tag_that_was_put_meanwhile_is_compared(tmp_path: Path) -> None:
    """Two coordinators make the same tag: one of them looks again."""
    lake = PaimonLake(tmp_path)
    ref = Stream(lake).commit(1, [1])

    class Late(LocalStorage):
        def put_if_absent(self, name: str, content: Content, draft: str = "") -> bool:
            make(lake, "day", ref, 1)
            return super().put_if_absent(name, content, draft)

    tag = Tag("day", ref, 1)
    with pytest.raises(LakeUnavailable, match="another process made the tag day meanwhile"):
        make_tag(Late(lake.location), tag)
    assert make_tag(Late(lake.location), tag) == TagThere()


@pytest.mark.slow
def test_a_commit_in_between_does_not_keep_the_tag_from_iceberg(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path, 2)
    stream = Stream(lake)
    ref = stream.commit(1, [1])
    catalog, commits = lake.catalog(Files()), [2]

    def load() -> Metadata:
        found = catalog.load()
        for decision in [commits.pop()] if commits else []:
            stream.commit(decision, [decision])
        return found

    assert tag_iceberg(catalog, load, Tag("day", ref, 1)) == TagMade()
    assert commits == []
    assert read(lake, "day") == [1]
    assert lake.ids() == [1, 2]
    stream.commit(3, [3])
    assert lake.ids() == [1, 2, 3]
