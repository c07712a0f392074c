"""A group whose coordinator is not there yet is asked again, without a warning."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, GroupCoordinatorNotAvailableError
from aiokafka.protocol.coordination import FindCoordinatorRequest
from structlog.testing import capture_logs

from sluicegate.coordinator.service import members
from sluicegate.coordinator.service.members import LocalMembership
from sluicegate.coordinator.settings.model import KafkaSettings

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
