"""Storage that refuses to be written or read: nothing is published, and the reason says what to do."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from sluicegate.lakes.port import LakeUnavailable, OutcomeUnknown, Publication, Published
from tests.contracts.lakes.harness import Fault, Stream
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.outcomes import is_refused
from tests.lakes.paimon.disks import Disk, mounted_disk, without_privileges


@pytest.fixture
def disk() -> Iterator[Disk]:
    with mounted_disk() as disk:
        yield disk


def listing(lake: PaimonLake) -> dict[str, list[str]]:
    return {name: sorted(os.listdir(lake.root / name)) for name in ("manifest", "snapshot")}


def not_published(stream: Stream, decision: int, attempt: Callable[[], Publication]) -> str:
    """The reason of a publication that fails again and again, leaves nothing behind, and may be repeated."""
    assert isinstance(stream.lake, PaimonLake)
    before = listing(stream.lake)
    reasons = set()
    for _ in range(3):
        outcome = attempt()
        assert is_refused(outcome, again=True), outcome
        reasons.add(outcome.reason)
    assert len(reasons) == 1, reasons
    assert listing(stream.lake) == before
    return reasons.pop()


@contextmanager
def no_space(lake: PaimonLake, disk: Disk) -> Iterator[None]:
    filler = disk.fill()
    yield
    filler.unlink()


@contextmanager
def no_inodes(lake: PaimonLake, disk: Disk) -> Iterator[None]:
    made = disk.use_up_inodes()
    yield
    for path in made:
        path.unlink()


@contextmanager
def read_only(lake: PaimonLake, disk: Disk) -> Iterator[None]:
    disk.remount("ro")
    yield
    disk.remount("rw")


@contextmanager
def no_permission(lake: PaimonLake, disk: Disk) -> Iterator[None]:
    with without_privileges():
        yield


@contextmanager
def size_limit(lake: PaimonLake, disk: Disk) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


Trouble = Callable[[PaimonLake, Disk], AbstractContextManager[None]]


@pytest.mark.parametrize(
    ("trouble", "cause", "help_"),
    [
        (no_space, "no space left on the file system (ENOSPC)", "Free some space"),
        (no_inodes, "no inodes left on the file system (ENOSPC)", "Remove files"),
        (read_only, "the file system is mounted read-only (EROFS)", "read-write"),
        (no_permission, "permission denied (EACCES)", "Give user"),
        (size_limit, "the file is larger than allowed (EFBIG)", "ulimit -f"),
    ],
)
def test_a_commit_that_the_storage_refuses_publishes_nothing_and_says_why(
    disk: Disk, trouble: Trouble, cause: str, help_: str
) -> None:
    lake = PaimonLake(disk.path)
    stream = Stream(lake)
    stream.commit(1, [1])
    event, head = lake.event([2]), stream.head(2)
    with trouble(lake, disk):
        reason = not_published(stream, 2, lambda: stream.publish(2, head, [event]))
    assert cause in reason
    assert help_ in reason
    assert f"the folder manifest of {lake.storage.uri}" in reason
    assert isinstance(stream.publish(2, stream.head(2), [event]), Published)
    assert lake.ids() == [1, 2]


def test_a_folder_that_cannot_be_read_is_named_when_a_decision_is_asked_for(disk: Disk) -> None:
    lake = PaimonLake(disk.path)
    stream = Stream(lake)
    stream.commit(1, [1])
    (lake.root / "snapshot").chmod(0)
    with without_privileges(), pytest.raises(LakeUnavailable) as raised:
        stream.ask(2)
    (lake.root / "snapshot").chmod(0o755)
    assert "cannot read snapshot/LATEST" in str(raised.value)
    assert "permission denied (EACCES). Give user 65534" in str(raised.value) or os.geteuid() != 0
    stream.commit(2, [2])


@pytest.mark.parametrize("call", ["open", "write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE])
def test_every_step_before_the_link_names_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    lake = PaimonLake(tmp_path)
    stream = Stream(lake)
    stream.commit(1, [1])
    event, head = lake.event([2]), stream.head(2)

    def failing(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        outcome = stream.publish(2, head, [event])
    assert is_refused(outcome, again=True)
    assert f"({errno.errorcode[code]})" in outcome.reason
    assert isinstance(stream.publish(2, stream.head(2), [event]), Published)


def test_a_link_that_fails_is_an_unknown_outcome_with_its_cause(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path)
    stream = Stream(lake, lake.committer(fault=Fault.LOST))
    outcome = stream.publish(1, stream.head(1), [lake.event([1])])
    assert isinstance(outcome, OutcomeUnknown)
    assert "the device reports an input/output error (EIO)" in outcome.reason
