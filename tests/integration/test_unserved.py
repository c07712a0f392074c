"""`sluicegate check` and `status` warn of a stream that the coordinators of its group do not have."""

import pytest

from sluicegate.embedded.ports import free_port
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.orders import invoke_here, sluicegate

pytestmark = pytest.mark.kafka
WARNING = "WARNING  stream flights: coordinators run in group {}, but none of them serves stream flights. "
ADVICE = "Give all members of the group the same settings, and restart them."


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
