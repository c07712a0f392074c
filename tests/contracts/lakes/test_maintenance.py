"""The contract of the maintenance, the same for every table format."""

import pyarrow as pa
import pytest

from sluicegate.events.files import attempt_label, stated_attempt
from sluicegate.events.models import FilesWritten
from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.port import BadFiles, LakeUnavailable
from tests.contracts.lakes.harness import USER, Lake, Stream, with_commits, written
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.memory_lake import MemoryLake


def paths(event: FilesWritten) -> list[str]:
    return [file.path for file in event.files]


def test_the_history_of_an_empty_table_is_whole(lake: Lake) -> None:
    history = lake.maintenance().history()
    assert (history.commits, history.whole) == ((), True)


def test_the_history_tells_who_committed_what_newest_first(lake: Lake) -> None:
    stream = Stream(lake)
    refs = [stream.commit(1, [1]), stream.commit(2, [2])]
    lake.foreign([3])
    history = lake.maintenance().history()
    ours = [each for each in history.commits if each.commit_user == USER]
    assert [(each.decision, each.digest) for each in ours] == [(2, "digest-2"), (1, "digest-1")]
    assert [each.ref for each in ours] == refs[::-1]
    assert (history.identity, history.whole) == (stream.table, True)
    foreign = history.commits[0]
    assert (foreign.digest, foreign.commit_user != USER) == ("", True)


def test_an_expired_history_says_that_it_is_not_whole(lake: Lake) -> None:
    with_commits(lake, 3)
    lake.expire(2)
    history = lake.maintenance().history()
    assert [each.decision for each in history.commits] == [3, 2]
    assert not history.whole


def test_a_file_that_nothing_refers_to_is_deleted_once(lake: Lake) -> None:
    stream = Stream(lake)
    loser = lake.event([2])
    stream.commit(1, [1])
    maintenance = lake.maintenance()
    (path,) = paths(loser)
    assert maintenance.file_status([path]) == {path: FileStatus.UNREFERENCED}
    assert maintenance.delete_unreferenced(path) is FileStatus.DELETED
    assert maintenance.delete_unreferenced(path) is FileStatus.GONE
    assert maintenance.file_status([path]) == {path: FileStatus.GONE}
    assert lake.ids() == [1]


def test_files_that_state_their_attempt_are_listed(lake: Lake) -> None:
    """A driver that has died has not named them in an event."""
    table = lake.adapter.parse_table(lake.location)
    label = attempt_label("s", "r1", "job-0f1e2d3c4b5a69788796a5b4c3d2e1f0", 7, "w", "a")
    batch = pa.RecordBatch.from_pydict({"id": [1]}, pa.schema([pa.field("id", pa.int64())]))
    stream, named = Stream(lake), written(lake.adapter, table, batch, label=label)
    (lost,) = paths(written(lake.adapter, table, batch, label=label))
    lake.event([2])
    stream.publish(1, stream.head(1), [named])
    found = lake.maintenance().stated_files()
    listed = {path: size for path, size in found.items() if stated_attempt(path.rpartition("/")[2])}
    assert {*listed} == {lost, *paths(named)}
    assert listed[paths(named)[0]] == named.files[0].size
    assert stated_attempt(lost.rpartition("/")[2]) == ("job0f1e2d3c4b5a6", 7)
    statuses = lake.maintenance().file_status(list(listed))
    assert [path for path, status in statuses.items() if status is FileStatus.UNREFERENCED] == [lost]
    assert lake.maintenance().delete_unreferenced(lost) is FileStatus.DELETED
    assert lake.ids() == [1]


@pytest.mark.slow
def test_a_file_that_is_committed_meanwhile_is_not_deleted(lake: Lake) -> None:
    stream = Stream(lake)
    late, loser = lake.event([1]), lake.event([2])
    maintenance = lake.maintenance()
    everything = paths(late) + paths(loser)
    assert set(maintenance.file_status(everything).values()) == {FileStatus.UNREFERENCED}
    stream.publish(1, stream.head(1), [late])
    assert [maintenance.delete_unreferenced(path) for path in everything] == [
        FileStatus.REFERENCED,
        FileStatus.DELETED,
    ]
    assert lake.ids() == [1]


@pytest.mark.slow
def test_files_of_expired_snapshots_stay_referenced(lake: Lake) -> None:
    stream = Stream(lake)
    event = lake.event([1])
    stream.publish(1, stream.head(1), [event])
    lake.foreign([2])
    lake.foreign([3])
    lake.expire(1)
    assert set(lake.maintenance().file_status(paths(event)).values()) == {FileStatus.REFERENCED}


def test_nothing_is_known_of_a_table_that_is_away(lake: Lake) -> None:
    (path,) = paths(lake.event([1]))
    lake.drop()
    with pytest.raises(LakeUnavailable):
        lake.maintenance().history()
    if isinstance(lake, MemoryLake | IcebergLake):
        with pytest.raises(LakeUnavailable):
            lake.maintenance().file_status([path])
    else:
        assert lake.maintenance().file_status([path]) == {path: FileStatus.GONE}


@pytest.mark.slow
def test_a_table_like_another_takes_its_files(lake: Lake) -> None:
    stream = Stream(lake)
    events = [lake.event([1]), lake.event([2])]
    for decision, event in enumerate(events, 1):
        assert stream.publish(decision, stream.head(decision), [event])
    maintenance = lake.maintenance(lake.location + "2")
    maintenance.create_like(lake.adapter.parse_table(lake.location))
    copy = lake.adapter.open_committer(lake.adapter.parse_table(maintenance.location), USER)
    state = copy.inspect()
    assert (state.head, state.identity != stream.table) == (None, True)
    adopted = [maintenance.adopt(event) for event in events]
    copy.check(adopted)
    assert [maintenance.adopt(event) for event in events] == adopted
    assert {event.location for event in adopted} == {maintenance.location}
    assert lake.ids() == [1, 2]


def test_what_is_gone_cannot_be_taken_over(lake: Lake) -> None:
    kept, lost = lake.event([1]), lake.event([2])
    lake.maintenance().delete_unreferenced(*paths(lost))
    maintenance = lake.maintenance(lake.location + "2")
    maintenance.create_like(lake.adapter.parse_table(lake.location))
    both = kept.model_copy(update={"files": kept.files + lost.files})
    with pytest.raises(BadFiles, match=r"is not in"):
        maintenance.adopt(both)
    assert set(maintenance.file_status(paths(both)).values()) == {FileStatus.GONE}
