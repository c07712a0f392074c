"""Commits to a branch: the main branch and other users of the table see nothing of them."""

from pathlib import Path

import pytest

from sluicegate.lakes.iceberg.ancestry import marker_property
from sluicegate.lakes.iceberg.committer import IcebergCommitter
from sluicegate.lakes.port import Absent, Found, LakeUnavailable, Published, TableRefused
from tests.contracts.lakes.harness import USER, Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.iceberg_rest_lake import iceberg_of

pytestmark = pytest.mark.slow


@pytest.fixture(params=["iceberg", "iceberg-rest"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> IcebergLake:
    lake = iceberg_of(request.param, request, tmp_path)
    Stream(lake).commit(1, [1])
    with lake.table.manage_snapshots() as snapshots:
        head = lake.metadata.head("main")
        assert head is not None
        snapshots.create_branch(head["snapshot-id"], "audit")
        snapshots.create_tag(head["snapshot-id"], "release")
    return lake


def on(lake: IcebergLake, branch: str) -> IcebergCommitter:
    return lake.adapter.open_committer(lake.adapter.parse_table(lake.location, {"branch": branch}), USER)


def test_a_branch_gets_commits_of_its_own(lake: IcebergLake) -> None:
    audit = Stream(lake, on(lake, "audit"))
    main = Stream(lake)
    made = audit.commit(2, [2])
    assert audit.ask(2) == Found(made)
    assert isinstance(main.ask(2), Absent)
    main.commit(2, [20])
    audit.commit(3, [3])
    table = lake.table
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 20]
    head = table.metadata.refs["audit"].snapshot_id
    assert sorted(table.scan(snapshot_id=head).to_arrow().column("id").to_pylist()) == [1, 2, 3]
    properties = lake.metadata.properties
    assert properties[marker_property(USER, "main")].split(":")[1] == "2"
    assert properties[marker_property(USER, "audit")].split(":")[1] == "3"
    assert lake.fields()["current-snapshot-id"] == table.metadata.refs["main"].snapshot_id
    assert len(lake.fields()["snapshot-log"]) == 2


def test_a_branch_that_is_dropped_is_unavailable(lake: IcebergLake) -> None:
    audit = Stream(lake, on(lake, "audit"))
    head = audit.head(2)
    lake.edit(lambda fields: fields["refs"].pop("audit"))
    with pytest.raises(LakeUnavailable, match="no branch audit"):
        audit.ask(2)
    assert not isinstance(audit.publish(2, head, [lake.event([2])]), Published)


def test_a_tag_is_no_branch(lake: IcebergLake) -> None:
    with pytest.raises(TableRefused, match="is a tag"):
        on(lake, "release")
