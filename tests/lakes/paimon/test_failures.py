"""Storage that fails, freezes and lies: nothing is lost and nothing doubled."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.events.problems import Cause, CauseCode
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
from tests.contracts.lakes.harness import USER, Fault, Stream
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.outcomes import is_refused
from tests.lakes.paimon import reading


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLake:
    return PaimonLake(tmp_path)


def fails(code: int) -> Callable[..., None]:
    def failing(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return failing


def manifest_files(lake: PaimonLake) -> set[str]:
    folder = lake.root / "manifest"
    return set(os.listdir(folder)) if folder.exists() else set()


@pytest.mark.slow
def test_a_full_disk_before_the_link_changes_nothing(
    lake: PaimonLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    event = lake.event([2])
    before = manifest_files(lake)
    for name in ("write", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fails(errno.ENOSPC))
            outcome = stream.publish(2, stream.head(2), [event])
            assert is_refused(outcome, again=True)
            assert "no space left on the file system (ENOSPC)" in outcome.reason
    assert manifest_files(lake) == before
    assert isinstance(stream.publish(2, stream.head(2), [event]), Published)
    assert lake.ids() == [1, 2]


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


@pytest.mark.slow
def test_an_unknown_outcome_keeps_every_file(lake: PaimonLake) -> None:
    stream = Stream(lake, lake.committer(fault=Fault.LOST))
    event = lake.event([1])
    assert isinstance(stream.publish(1, stream.head(1), [event]), OutcomeUnknown)
    assert len(manifest_files(lake)) == 3
    landed = Stream(lake, lake.committer(fault=Fault.LANDED))
    assert isinstance(landed.publish(1, landed.head(1), [event]), OutcomeUnknown)
    assert lake.ids() == [1]


class _Overtaken(LocalStorage):
    """Another product commits between our look at the head and our link."""

    def __init__(self, lake: PaimonLake) -> None:
        super().__init__(lake.location)
        self._lake = lake

    def link(self, draft: str, target: str) -> None:
        self._lake.foreign([1_000])
        super().link(draft, target)


def test_a_definite_conflict_leaves_no_manifests_behind(lake: PaimonLake) -> None:
    stream = Stream(lake, PaimonCommitter(_Overtaken(lake), USER))
    outcome = stream.publish(1, stream.head(1), [lake.event([1])])
    assert is_refused(outcome, again=True)
    assert len(manifest_files(lake)) == 3
    assert lake.ids() == [1_000]
    assert [name for name in os.listdir(lake.root / "snapshot") if name.endswith(".tmp")] == []


class _Frozen(LocalStorage):
    """Time passes between our look at the head and our link."""

    def __init__(self, lake: PaimonLake, meanwhile: Callable[[], None]) -> None:
        super().__init__(lake.location)
        self._meanwhile = meanwhile

    def link(self, draft: str, target: str) -> None:
        self._meanwhile()
        super().link(draft, target)


@pytest.mark.slow
@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("others", [2, 5])
def test_a_thawed_committer_does_not_publish_into_expired_history(
    lake: PaimonLake, before: int, keep: int, others: int
) -> None:
    """The number after its head is free again, because what stood there has expired."""
    stream = Stream(lake)
    for decision in range(1, before + 1):
        stream.commit(decision, [decision])

    def meanwhile() -> None:
        for number in range(others):
            lake.foreign([1_000 + number, 2_000 + number])
        lake.expire(keep)

    frozen = Stream(lake, PaimonCommitter(_Frozen(lake, meanwhile), USER))
    outcome = frozen.publish(before + 1, frozen.head(before + 1), [lake.event([7])])
    rows = lake.ids()
    if others == 2 and keep == 2:
        assert is_refused(outcome, again=True)
    else:
        assert isinstance(outcome, OutcomeUnknown)
    assert 7 not in rows
    assert len(rows) == before + 2 * others
    assert max(lake.snapshot_ids()) == before + others
    assert (lake.root / "snapshot" / "LATEST").read_text() == str(before + others)
    answer = frozen.ask(before + 1)
    assert isinstance(answer, Unproven if before or len(lake.snapshot_ids()) < others else Absent)


@pytest.mark.slow
@pytest.mark.parametrize("regrown", [0, 1])
def test_a_thawed_committer_does_not_publish_on_what_was_rolled_back(lake: PaimonLake, regrown: int) -> None:
    stream = Stream(lake)
    for decision in (1, 2, 3):
        stream.commit(decision, [decision])

    def meanwhile() -> None:
        lake.rollback(2)
        for number in range(regrown):
            lake.foreign([1_000 + number])

    frozen = Stream(lake, PaimonCommitter(_Frozen(lake, meanwhile), USER))
    outcome = frozen.publish(4, stream.recorded, [lake.event([4])])
    assert isinstance(outcome, OutcomeUnknown)
    assert lake.ids() == [1, 2, *range(1_000, 1_000 + regrown)]
    assert isinstance(frozen.ask(4), Unproven)


def test_a_commit_that_others_build_on_at_once_counts(lake: PaimonLake) -> None:
    """The first snapshot has no predecessor to prove its place; what follows it does."""

    class Busy(LocalStorage):
        def link(self, draft: str, target: str) -> None:
            super().link(draft, target)
            lake.foreign([1_000])

    stream = Stream(lake, PaimonCommitter(Busy(lake.location), USER))
    assert isinstance(stream.publish(1, stream.head(1), [lake.event([1])]), Published)
    assert lake.ids() == [1, 1_000]


class _SlowAcknowledgement(LocalStorage):
    """The link lands, but the file system repeats the request and answers that the name is taken."""

    def link(self, draft: str, target: str) -> None:
        super().link(draft, target)
        raise FileExistsError(errno.EEXIST, "injected")


def test_a_repeated_link_is_recognised_as_ours(lake: PaimonLake) -> None:
    stream = Stream(lake, PaimonCommitter(_SlowAcknowledgement(lake.location), USER))
    outcome = stream.publish(1, stream.head(1), [lake.event([1])])
    assert isinstance(outcome, Published)
    assert stream.ask(1) == Found(outcome.snapshot)
    assert lake.ids() == [1]


@pytest.mark.slow
@pytest.mark.parametrize("hint", [b"1", b"", b"not a number", b"77", None])
def test_a_wrong_hint_misleads_nobody(lake: PaimonLake, hint: bytes | None) -> None:
    stream = Stream(lake)
    for decision in (1, 2, 3):
        stream.commit(decision, [decision])
    latest = lake.root / "snapshot" / "LATEST"
    latest.unlink() if hint is None else latest.write_bytes(hint)
    assert isinstance(stream.ask(3), Found)
    stream.commit(4, [4])
    assert lake.ids() == [1, 2, 3, 4]


def test_a_gap_in_the_history_is_no_proof(lake: PaimonLake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    for number in range(4):
        lake.foreign([1_000 + number])
    (lake.root / "snapshot" / "snapshot-3").unlink()
    answer = stream.ask(2)
    assert isinstance(answer, Unproven)
    assert answer.cause == Cause(code=CauseCode.SNAPSHOT_MISSING, snapshot=4)


def test_our_snapshot_overwritten_by_a_careless_writer_is_noticed(lake: PaimonLake) -> None:
    """Some products check and then rename, and so replace a snapshot that is there already."""
    stream = Stream(lake)
    stream.commit(1, [1])
    stream.commit(2, [2])
    path = lake.root / "snapshot" / "snapshot-2"
    path.write_bytes(path.read_bytes().replace(b"stream-a", b"careless"))
    assert isinstance(stream.ask(3), Unproven)


def test_an_unreadable_snapshot_is_waited_for(lake: PaimonLake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    path = lake.root / "snapshot" / "snapshot-1"
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    with pytest.raises(LakeUnavailable):
        stream.ask(2)
    path.write_bytes(whole)
    assert isinstance(stream.ask(2), Absent)


def test_a_snapshot_of_a_newer_version_is_refused(lake: PaimonLake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    path = lake.root / "snapshot" / "snapshot-1"
    path.write_bytes(path.read_bytes().replace(b'"version": 3', b'"version": 4'))
    fresh = Stream.__new__(Stream)
    with pytest.raises(TableRefused, match="version 4"):
        Stream.__init__(fresh, lake)
    stream.recorded = None
    head = stream.committer.ask(2, "digest-2", stream.table, None)
    assert isinstance(head, Absent)
    assert is_refused(stream.publish(2, head.head, []))


def test_lists_that_are_gone_stop_the_commit_before_it_starts(lake: PaimonLake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    for name in manifest_files(lake):
        if name.startswith("manifest-list"):
            (lake.root / "manifest" / name).unlink()
    outcome = stream.publish(2, stream.head(2), [lake.event([2])])
    assert is_refused(outcome, again=True)
    assert "manifest-list" in outcome.reason
    assert lake.snapshot_ids() == [1]


@pytest.mark.slow
@pytest.mark.parametrize("which", ["baseManifestList", "deltaManifestList"])
def test_a_list_that_lost_its_end_stops_the_commit(lake: PaimonLake, which: str) -> None:
    """Some cuts leave a well-formed list of fewer manifests: only its size in the snapshot shows the loss."""
    stream = Stream(lake)
    for number in (1, 2, 3):
        stream.commit(number, [number])
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
    assert isinstance(stream.publish(4, stream.head(4), [event]), Published)
    assert lake.ids() == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_list_with_other_bytes_inside_stops_the_merge(lake: PaimonLake) -> None:
    stream = Stream(lake)
    for number in range(1, MIN_COUNT + 1):
        stream.commit(number, [number])
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
    stream = Stream(lake)
    for number in range(1, MIN_COUNT):
        stream.commit(number, [number])
    damaged = lake.root / "manifest" / reading.manifests(lake.root, 1)[0]["_FILE_NAME"]
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1])
    for number in range(MIN_COUNT, 2 * MIN_COUNT):
        stream.commit(number, [number])
    damaged.write_bytes(whole)
    assert lake.ids() == list(range(1, 2 * MIN_COUNT))


def test_what_is_carried_from_the_head_is_carried(lake: PaimonLake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    path = lake.root / "snapshot" / "snapshot-1"
    more = b'"statistics": "stat-1",\n  "indexManifest": "index-1",\n  "uuid"'
    path.write_bytes(path.read_bytes().replace(b'"uuid"', more))
    stream.recorded = lake.committer().inspect().head
    stream.commit(2, [])
    content = (lake.root / "snapshot" / "snapshot-2").read_text()
    assert '"statistics": "stat-1"' in content
    assert '"indexManifest": "index-1"' in content
