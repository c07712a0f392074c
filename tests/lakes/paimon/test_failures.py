"""Storage that fails and lies: nothing is lost and nothing doubled."""

import errno
import os
from collections.abc import Callable

import pyarrow as pa
import pytest

from sluicegate.events.problems import Cause, CauseCode
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.paimon.manifests import MIN_COUNT
from sluicegate.lakes.port import (
    Absent,
    Found,
    LakeUnavailable,
    OutcomeUnknown,
    Published,
    TableRefused,
    Unproven,
)
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.harness import USER, Fault, Stream, with_commits
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.outcomes import is_refused
from tests.lakes.paimon import reading


def fails(code: int) -> Callable[..., None]:
    def failing(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return failing


def manifest_files(lake: PaimonLake) -> set[str]:
    folder = lake.root / "manifest"
    return set(os.listdir(folder)) if folder.exists() else set()


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP])
def test_a_file_system_without_links_is_refused(
    lake: PaimonLake, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    stream = Stream(lake)
    monkeypatch.setattr(os, "link", fails(code))
    outcome = stream.publish(1, stream.head(1), [lake.event([1])])
    assert is_refused(outcome)
    assert outcome.cause == Cause(code=CauseCode.NO_HARD_LINKS)
    assert os.strerror(code) in outcome.reason
    assert manifest_files(lake) == set()
    wide = pa.schema([("id", pa.int64()), ("note", pa.string())])
    with pytest.raises(TableRefused, match="no hard links"):
        evolve(lake.adapter, lake.adapter.parse_table(lake.location), wide)
    assert lake.schemas() == 1


@pytest.mark.parametrize("call", ["open", "write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE])
def test_a_step_before_the_link_that_fails_publishes_nothing_and_names_its_cause(
    lake: PaimonLake, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    stream = with_commits(lake, 1)
    event, head = lake.event([2]), stream.head(2)
    before = manifest_files(lake)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails(code))
        outcome = stream.publish(2, head, [event])
    assert is_refused(outcome, again=True)
    assert f"({errno.errorcode[code]})" in outcome.reason
    assert manifest_files(lake) == before
    stream.add(2, event)
    assert lake.ids() == [1, 2]


@pytest.mark.slow
def test_an_unknown_outcome_keeps_every_file(lake: PaimonLake) -> None:
    stream = Stream(lake, lake.committer(fault=Fault.LOST))
    event = lake.event([1])
    assert isinstance(stream.publish(1, stream.head(1), [event]), OutcomeUnknown)
    assert len(manifest_files(lake)) == 3
    landed = Stream(lake, lake.committer(fault=Fault.LANDED))
    assert isinstance(landed.publish(1, landed.head(1), [event]), OutcomeUnknown)
    assert lake.ids() == [1]


def test_a_definite_conflict_leaves_no_manifests_behind(lake: PaimonLake) -> None:
    class Overtaken(LocalStorage):
        """Another product commits between our look at the head and our link."""

        def link(self, draft: str, target: str) -> None:
            lake.foreign([1_000])
            super().link(draft, target)

    stream = Stream(lake, PaimonCommitter(Overtaken(lake.location), USER))
    outcome = stream.publish(1, stream.head(1), [lake.event([1])])
    assert is_refused(outcome, again=True)
    assert len(manifest_files(lake)) == 3
    assert lake.ids() == [1_000]
    assert [name for name in os.listdir(lake.root / "snapshot") if name.endswith(".tmp")] == []


def test_a_repeated_link_is_recognised_as_ours(lake: PaimonLake) -> None:
    class SlowAcknowledgement(LocalStorage):
        """The link lands, but the file system repeats the request and answers that the name is taken."""

        def link(self, draft: str, target: str) -> None:
            super().link(draft, target)
            raise FileExistsError(errno.EEXIST, "injected")

    stream = Stream(lake, PaimonCommitter(SlowAcknowledgement(lake.location), USER))
    outcome = stream.publish(1, stream.head(1), [lake.event([1])])
    assert isinstance(outcome, Published)
    assert stream.ask(1) == Found(outcome.snapshot)
    assert lake.ids() == [1]


@pytest.mark.slow
@pytest.mark.parametrize("hint", [b"1", b"", b"not a number", b"77", None])
def test_a_wrong_hint_misleads_nobody(lake: PaimonLake, hint: bytes | None) -> None:
    stream = with_commits(lake, 3)
    latest = lake.root / "snapshot" / "LATEST"
    latest.unlink() if hint is None else latest.write_bytes(hint)
    assert isinstance(stream.ask(3), Found)
    stream.commit(4, [4])
    assert lake.ids() == [1, 2, 3, 4]


def test_a_gap_in_the_history_is_no_proof(lake: PaimonLake) -> None:
    stream = with_commits(lake, 1)
    for number in range(4):
        lake.foreign([1_000 + number])
    (lake.root / "snapshot" / "snapshot-3").unlink()
    answer = stream.ask(2)
    assert isinstance(answer, Unproven)
    assert answer.cause == Cause(code=CauseCode.SNAPSHOT_MISSING, snapshot=4)


def test_an_unreadable_snapshot_is_waited_for(lake: PaimonLake) -> None:
    stream = with_commits(lake, 1)
    path = lake.root / "snapshot" / "snapshot-1"
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    with pytest.raises(LakeUnavailable):
        stream.ask(2)
    path.write_bytes(whole)
    assert isinstance(stream.ask(2), Absent)


def test_a_snapshot_of_a_newer_version_is_refused(lake: PaimonLake) -> None:
    stream = with_commits(lake, 1)
    path = lake.root / "snapshot" / "snapshot-1"
    path.write_bytes(path.read_bytes().replace(b'"version": 3', b'"version": 4'))
    with pytest.raises(TableRefused, match="version 4"):
        Stream(lake)
    stream.recorded = None
    assert is_refused(stream.publish(2, stream.head(2), []))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["baseManifestList", "deltaManifestList"])
def test_a_list_that_lost_its_end_stops_the_commit(lake: PaimonLake, which: str) -> None:
    """Some cuts leave a well-formed list of fewer manifests: only its size in the snapshot shows the loss."""
    stream = with_commits(lake, 3)
    path = lake.root / "manifest" / reading.snapshot(lake.root, 3)[which]
    whole, event = path.read_bytes(), lake.event([4])
    head = stream.head(4)
    for end in sorted({*range(0, len(whole), 7), *range(len(whole) - 40, len(whole))}):
        path.write_bytes(whole[:end])
        outcome = stream.publish(4, head, [event])
        assert is_refused(outcome, again=True), end
        assert path.name in outcome.reason
        assert "it was cut or changed; restore it" in outcome.reason
    path.write_bytes(whole)
    stream.add(4, event)
    assert lake.ids() == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_list_with_other_bytes_inside_stops_the_merge(lake: PaimonLake) -> None:
    stream = with_commits(lake, MIN_COUNT)
    path = lake.root / "manifest" / reading.snapshot(lake.root, MIN_COUNT)["baseManifestList"]
    whole = path.read_bytes()
    frame = whole.rindex(bytes.fromhex("28b52ffd"))
    path.write_bytes(whole[:frame] + bytes(4) + whole[frame + 4 :])
    number = MIN_COUNT + 1
    outcome = stream.publish(number, stream.head(number), [lake.event([number])])
    assert is_refused(outcome, again=True)
    assert "its records cannot be decoded" in outcome.reason
    path.write_bytes(whole)
    stream.commit(number, [number])
    assert lake.ids() == list(range(1, number + 1))


@pytest.mark.slow
def test_a_damaged_manifest_is_not_merged_and_stays_in_the_list(lake: PaimonLake) -> None:
    stream = with_commits(lake, MIN_COUNT - 1)
    damaged = lake.root / "manifest" / reading.manifests(lake.root, 1)[0]["_FILE_NAME"]
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1])
    for number in range(MIN_COUNT, 2 * MIN_COUNT):
        stream.commit(number, [number])
    damaged.write_bytes(whole)
    assert lake.ids() == list(range(1, 2 * MIN_COUNT))


def test_what_is_carried_from_the_head_is_carried(lake: PaimonLake) -> None:
    stream = with_commits(lake, 1)
    path = lake.root / "snapshot" / "snapshot-1"
    more = b'"statistics": "stat-1",\n  "indexManifest": "index-1",\n  "uuid"'
    path.write_bytes(path.read_bytes().replace(b'"uuid"', more))
    stream.recorded = lake.committer().inspect().head
    stream.commit(2, [2])
    content = (lake.root / "snapshot" / "snapshot-2").read_text()
    assert '"statistics": "stat-1"' in content
    assert '"indexManifest": "index-1"' in content
