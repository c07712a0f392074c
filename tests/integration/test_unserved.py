"""`sluicegate check` and `status` warn of a stream that the coordinators of its group do not have."""

import pytest

from sluicegate.cli import serving
from sluicegate.embedded.ports import free_port
from sluicegate.events.envelope import partition_of
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS
from tests.integration.orders import invoke_here, sluicegate
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
WARNING = "WARNING  stream flights: coordinators run in group {}, but none of them serves stream flights. "
ADVICE = "Give all members of the group the same settings, and send them SIGHUP or restart them."


async def test_a_member_that_owns_the_partition_and_lacks_the_stream(place: Place) -> None:
    port = free_port()
    async with running(place.settings(http={"port": port}), ready=False):
        # The command may come before the coordinator is in its group: that is no mistake.
        assert "stream flights" not in await sluicegate(place, "check", HTTP__PORT=str(port))
    assert "NOT SERVED" not in (await invoke_here(place, "status")).stdout
    async with running(place.settings("trains", http={"port": port})):
        assert WARNING.format(place.prefix) + ADVICE in await sluicegate(place, "check", HTTP__PORT=str(port))
        status = await sluicegate(place, "status", HTTP__PORT=str(port))
        assert f"  NOT SERVED: coordinators run in group {place.prefix}, but none of them" in status
    # The restarted member has the settings that the warning asks for.
    async with running(place.settings("flights", "trains", http={"port": port})):
        assert "stream flights:" not in await sluicegate(place, "check", HTTP__PORT=str(port))
        assert "NOT SERVED" not in await sluicegate(place, "status", HTTP__PORT=str(port))


def one_a_partition(prefix: str) -> list[str]:
    """Return names of streams, one for each partition."""
    names = {partition_of(name, PARTITIONS): name for name in (f"{prefix}{number}" for number in range(100))}
    return [names[number] for number in range(PARTITIONS)]


async def test_two_members_with_different_settings(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition has a stream of either member, and one of them is not served. Neither can be asked."""
    monkeypatch.setattr(serving, "PATIENCE", 0.0)
    ours, others = one_a_partition("a"), one_a_partition("b")
    every = place.settings(*ours, *others)
    async with running(place.settings(*ours)) as first, running(place.settings(*others)) as second:

        async def unserved() -> set[str]:
            return {each.check.removeprefix("stream ") for each in await serving.check_served(every)}

        def owned() -> list[str]:
            return sorted([*first.status()["partitions"], *second.status()["partitions"]])

        # The group moves a partition of the first member to the second one.
        await until(owned, lambda found: found == ["0", "1", "2"] and bool(second.status()["partitions"]))
        lacking = {ours[int(number)] for number in second.status()["partitions"]}
        # The first member may have served its streams there before the second one came.
        expected = {others[int(number)] for number in first.status()["partitions"]}
        found = await until(unserved, lambda names: names <= expected | lacking)
        assert expected <= found
