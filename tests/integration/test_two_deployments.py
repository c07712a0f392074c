"""Two deployments with topics of their own commit to one table as the same user."""

import re
from dataclasses import replace

import pytest

from sluicegate.events.problems import Code
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import make_topics
from tests.integration.letters import conditions, stalled
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


async def test_the_second_one_continues_as_its_stall_advises(place: Place, impatient: None) -> None:
    """Another commit user for the same stream would be refused for its state record."""
    prefix = f"{place.prefix}b"
    second = replace(place, prefix=prefix, topics=await make_topics(place.bootstrap, prefix))
    async with place.job() as job, running(place.settings()):
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
    async with running(second.settings(), ready=False) as service:
        await until(lambda: stalled(service), lambda code: code == Code.TABLE_AHEAD)
        (stall,) = conditions(service)
        assert re.search(
            "If another deployment commits as the same user, begin with a new stream: a new name and "
            "commit_user, and empty checkpoint locations. Let its sources begin right after the committed",
            stall["message"],
        )
    async with running(second.settings("flights2")) as service, second.job("flights2") as other:
        assert (await other.register()).accepted
        await other.run_batch([2])
        await other.committed([1, 2])
        assert stalled(service, "flights2") is None
