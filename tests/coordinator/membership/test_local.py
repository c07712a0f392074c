"""Members of this host: only the files of dead processes can be locked."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, GroupCoordinatorNotAvailableError
from aiokafka.protocol.coordination import FindCoordinatorRequest
from structlog.testing import capture_logs

from sluicegate.coordinator.service import members
from sluicegate.coordinator.service.members import LocalMembership, default_folder
from sluicegate.coordinator.settings.model import KafkaSettings

_MEMBER = """
import sys
from sluicegate.coordinator.settings.model import KafkaSettings
from sluicegate.coordinator.service.members import LocalMembership
settings = KafkaSettings(bootstrap_servers="k:1", group_id="g", members_folder=sys.argv[1])
with LocalMembership(settings) as membership:
    print(membership.client_id, flush=True)
    sys.stdin.read()
"""


def kafka(folder: Path, group: str = "g") -> KafkaSettings:
    return KafkaSettings(bootstrap_servers="k:1", group_id=group, members_folder=str(folder))


@contextmanager
def member(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that sits there, and its client id."""
    command = [sys.executable, "-c", _MEMBER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.slow
def test_only_a_process_that_has_ended_is_dead(tmp_path: Path) -> None:
    with member(tmp_path) as (process, name):
        assert name.startswith("sluicegate-")
        with LocalMembership(kafka(tmp_path)) as membership:
            assert membership.dead == frozenset()
            assert membership.client_id != name
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        with LocalMembership(kafka(tmp_path)) as membership:
            assert name not in membership.dead, "a frozen process may wake up"
        process.kill()
        process.wait()
        with LocalMembership(kafka(tmp_path)) as membership:
            assert name in membership.dead


def test_the_dead_are_told_until_they_are_forgotten(tmp_path: Path) -> None:
    with LocalMembership(kafka(tmp_path)) as first:
        pass
    with LocalMembership(kafka(tmp_path)) as second:
        assert second.dead == {first.client_id}
    with LocalMembership(kafka(tmp_path)) as third:
        assert third.dead == {first.client_id, second.client_id}
        third.forget_dead()
        assert third.dead == frozenset()
    with LocalMembership(kafka(tmp_path)) as fourth:
        assert fourth.dead == {third.client_id}


def test_groups_do_not_see_each_other(tmp_path: Path) -> None:
    with LocalMembership(kafka(tmp_path)):
        pass
    with LocalMembership(kafka(tmp_path, "other")) as membership:
        assert membership.dead == frozenset()


def test_two_that_start_at_once_do_not_both_have_the_dead(tmp_path: Path) -> None:
    with LocalMembership(kafka(tmp_path)) as dead:
        pass
    with LocalMembership(kafka(tmp_path)) as one, LocalMembership(kafka(tmp_path)) as two:
        assert one.dead == {dead.client_id}
        assert two.dead == frozenset()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}'])
def test_a_torn_file_names_nobody(tmp_path: Path, content: str) -> None:
    with LocalMembership(kafka(tmp_path)):
        pass
    (file,) = tmp_path.glob("*.membership")
    file.write_text(content)
    with LocalMembership(kafka(tmp_path)) as membership:
        assert membership.dead <= {""}


def test_a_folder_that_cannot_be_used_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with LocalMembership(kafka(tmp_path / "file")) as membership:
        assert membership.dead == frozenset()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with LocalMembership(kafka(tmp_path / "link")) as membership:
        assert membership.dead == frozenset()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_default_is_a_folder_of_the_user() -> None:
    assert default_folder().name == f"sluicegate-{os.geteuid()}"


UNAVAILABLE, DENIED = GroupCoordinatorNotAvailableError.errno, GroupAuthorizationFailedError.errno


class Broker:
    """Answers of a broker: these error codes for the coordinator of the group, then the member."""

    def __init__(self, member: str, *codes: int) -> None:
        self.member, self.codes = member, [*codes]

    async def bootstrap(self) -> None: ...

    async def close(self) -> None: ...

    def get_random_node(self) -> int:
        return 0

    async def send(self, _: int, request: Any) -> Any:
        if isinstance(request, FindCoordinatorRequest):
            code = self.codes.pop(0) if self.codes else 0
            return SimpleNamespace(error_code=code, coordinator_id=0)
        return SimpleNamespace(groups=[(0, "g", "", "", "", [("id", self.member)])])


@pytest.fixture
def membership(tmp_path: Path) -> Iterator[LocalMembership]:
    """Give the membership of a process after one that has ended on this host."""
    kafka = KafkaSettings(bootstrap_servers="nowhere:1", members_folder=str(tmp_path))
    with LocalMembership(kafka):
        pass
    with LocalMembership(kafka) as found:
        assert found.dead
        yield found


async def search(membership: LocalMembership, monkeypatch: pytest.MonkeyPatch, *codes: int) -> list[Any]:
    """Search the group of a broker with these codes, and return the log."""
    broker = Broker(membership.client_id, *codes)
    monkeypatch.setattr(members, "AIOKafkaClient", lambda **_: broker)
    with capture_logs() as logged:
        await members.evict_dead_members(KafkaSettings(bootstrap_servers="nowhere:1"), membership)
    assert broker.codes == []
    return logged


@pytest.mark.slow
async def test_a_new_cluster_without_a_coordinator_is_asked_again(
    membership: LocalMembership, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await search(membership, monkeypatch, UNAVAILABLE, UNAVAILABLE) == []
    assert not membership.dead


async def test_a_search_that_is_denied_is_a_warning(
    membership: LocalMembership, monkeypatch: pytest.MonkeyPatch
) -> None:
    (logged,) = await search(membership, monkeypatch, DENIED)
    assert "was not searched" in logged["event"]
    assert membership.dead
