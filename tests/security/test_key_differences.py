"""Two members with different signing keys: named by each member and by `check`, and cured as advised."""

import json
from functools import partial
from operator import not_

import pytest

from sluicegate.cli.local.process import free_port
from sluicegate.coordinator.service.service import Service
from sluicegate.events.problems import Code
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.letters import codes, conditions, stalled
from tests.integration.metrics import metrics_of
from tests.integration.orders import invoke
from tests.integration.test_limits import die_at
from tests.integration.waiting import until
from tests.security.test_forgery import STREAM, as_variables, signing

pytestmark = pytest.mark.kafka

MISSING = "the signing key k2 signs at"
ADVICE = "Add its file to the end of kafka.signing.key_files of every member and command, and restart the"
METRIC = "sluicegate_signing_key_differences {}.0"


async def checked(place: Place, *keys: str, mode: str = "required", **more: str) -> tuple[int, str, str]:
    """Return the exit status of `check`, and its line about keys with these settings: verdict and detail."""
    result = await invoke(place, "check", "--json", **as_variables(place, mode, *keys), **more)
    name = f"group {place.prefix}, signing keys"
    found = [each for each in json.loads(result.stdout)["checks"] if each["check"] == name]
    if not found:
        return result.exit_code, "", ""
    verdict = "WARNING" if found[0]["warning"] else "OK" if found[0]["ok"] else "PROBLEM"
    return result.exit_code, verdict, "\n".join(each["detail"] for each in found)


def differences(service: Service) -> list[str]:
    """Return the differences between the members, as `/status` has them."""
    return list(service.status()["differences"])


async def test_a_member_that_lacks_the_key_of_another_one(place: Place) -> None:
    """One member signs with a new key before the other one has it. Then both get it in the advised order."""
    port = free_port()
    hasty = signing(place, "required", "k2", "k1").model_copy(
        update={"http": place.settings(http={"port": port}).http}
    )
    async with place.job() as job:
        async with running(hasty) as first:
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            assert first.status()["differences"] == []
            async with running(signing(place, "required", "k1")) as second:
                for each in (first, second):
                    (told,) = await until(partial(differences, each))
                    assert MISSING in told
                    assert ADVICE in told
                    assert METRIC.format(1) in await metrics_of(each)
                status, verdict, told = await checked(place, "k2", "k1")
                assert (status, verdict) == (1, "PROBLEM")
                assert MISSING in told
                assert ADVICE in told
                shown = await invoke(place, "status", HTTP__PORT=str(port))
                assert f"THE MEMBERS DIFFER: {MISSING}" in shown.stdout
            # The other one has gone.
            await until(partial(differences, first), not_)
            assert METRIC.format(0) in await metrics_of(first)
        before, after = signing(place, "required", "k1", "k2"), signing(place, "required", "k2", "k1")
        async with running(before), running(after) as service:
            await job.run_batch([2])
            await job.committed([1, 2])
            assert service.status()["differences"] == []
            status, verdict, told = await checked(place, "k2", "k1")
            assert (status, verdict, told) == (0, "OK", "2 of 2 members publish their keys, and all fit")
    verified = await invoke(place, "replay", "verify", *STREAM, **as_variables(place, "required", "k2", "k1"))
    assert verified.exit_code == 0, verified.output
    assert read_ids(place.table) == [1, 2]


@pytest.mark.parametrize("point", ["append-decision.after", "publish.after", "append-committed.after"])
async def test_a_decision_that_the_next_owner_cannot_read_is_never_doubled(place: Place, point: str) -> None:
    """The owner signs with a key that its successor lacks, and is killed before its state record has the cut.

    The successor reads the decision as a dead letter. With the key, it goes on.
    """
    async with place.job() as job:
        async with running(signing(place, "required", "k1", "k2")):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
        await job.run_batch([2])
        variables = as_variables(place, "required", "k2", "k1")
        await die_at(place, point, **{f"SLUICEGATE_{name}": value for name, value in variables.items()})
        async with running(signing(place, "required", "k1"), ready=False) as service:
            assert await until(lambda: codes(job))
            await job.run_batch([3])
            # Where the table has the decision, the stream stalls. Else the successor makes the same one.
            seen = await until(lambda: stalled(service) or read_ids(place.table)[2:])
            assert seen == ([3] if point == "append-decision.after" else Code.TABLE_AHEAD)
        assert len(read_ids(place.table)) == len({*read_ids(place.table)})
        async with running(signing(place, "required", "k1", "k2")) as service:
            await job.run_batch([4])
            await job.committed([1, 2, 3, 4])
            assert conditions(service) == []
    verified = await invoke(place, "replay", "verify", *STREAM, **variables)
    assert verified.exit_code == 0, verified.output
