"""Two members with different signing keys: named by each member and by `check`, and cured as advised."""

import json
from functools import partial
from operator import not_

import pytest

from sluicegate.coordinator.core.state_record import StateRecord, decode_record
from sluicegate.coordinator.service.service import Service
from sluicegate.embedded.ports import free_port
from sluicegate.events.envelope import EventType, wire_type
from sluicegate.events.problems import Code
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids, read_records
from tests.integration.letters import codes, conditions, stalled
from tests.integration.metrics import metrics_of
from tests.integration.orders import invoke
from tests.integration.test_limits import die_at
from tests.integration.waiting import until
from tests.security.test_forgery import STREAM, as_variables, log_of, signing

pytestmark = pytest.mark.kafka

MISSING = "the signing key k2 signs at"
ADVICE = "Add its file to the end of kafka.signing.key_files of every member and command, and restart the"
RECOVER = ("stream", "recover", *STREAM)
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


async def record_is_past_the_decision(place: Place) -> bool:
    """True if the newest state record includes the place of the newest decision in the log."""
    (*_, decision) = [
        each
        for each in await log_of(place)
        if wire_type(EventType.CUT_DECIDED) in dict(each.headers).values()
    ]
    (*_, newest) = [
        each for each in await read_records(place.bootstrap, place.topics.state) if each.key == b"flights"
    ]
    record = decode_record("flights", newest.value)
    return isinstance(record, StateRecord) and record.applied > decision.offset


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


@pytest.mark.parametrize(
    ("keys", "mode", "text"),
    [
        (("k2",), "required", "the signing key k2 signs at the settings of this command, and is missing at"),
        (("k1",), "off", "kafka.signing.mode is off at the settings of this command, and required at"),
    ],
)
async def test_a_command_with_other_keys(place: Place, keys: tuple[str, ...], mode: str, text: str) -> None:
    async with running(signing(place, "required", "k1")):
        status, verdict, told = await checked(place, *keys, mode=mode)
        assert (status, verdict) == (1, "PROBLEM")
        assert text in told
        assert (await checked(place, "k1"))[:2] == (0, "OK")
        status, verdict, told = await checked(place, "k1", "k2")
        assert (status, verdict) == (0, "WARNING")
        assert "Add it to kafka.signing.key_files of every member, and restart them, before one lists" in told


async def test_nothing_is_compared_where_nothing_is_signed(place: Place) -> None:
    async with running(place.settings()) as service:
        assert await checked(place, mode="off") == (0, "", "")
        assert service.status()["differences"] == []


async def test_a_record_that_has_passed_a_refused_decision_is_made_again(place: Place) -> None:
    """A short mix of keys, and a stall that stays after the repair: the record is past the decision."""
    async with place.job() as job:
        async with running(signing(place, "required", "k1", "k2")):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
        await job.run_batch([2])
        variables = as_variables(place, "required", "k2", "k1")
        await die_at(
            place, "publish.after", **{f"SLUICEGATE_{name}": text for name, text in variables.items()}
        )
        # What follows the decision takes the record past it.
        await job.run_batch([3])
        async with running(signing(place, "required", "k1"), ready=False) as service:
            assert await until(lambda: stalled(service)) == Code.TABLE_AHEAD
            await until(lambda: record_is_past_the_decision(place))
            serving = await invoke(place, *RECOVER, **variables)
            assert (serving.exit_code, "Stop them first" in serving.stderr) == (2, True), serving.output
        async with running(signing(place, "required", "k1", "k2"), ready=False) as service:
            told = await until(lambda: [each for each in conditions(service) if each["kind"] == "stall"])
            assert "`sluicegate stream recover --stream flights`" in str(told)
        lacking = await invoke(place, *RECOVER, **as_variables(place, "required", "k1"))
        assert lacking.exit_code == 2, lacking.output
        assert "Give this command all keys that the log was signed with" in lacking.stderr
        other = await invoke(place, *RECOVER, **variables)
        # The record names the keys of the coordinator that wrote it, though that one has stopped.
        assert (other.exit_code, "signs with the key k2, which is unknown at" in other.stderr) == (2, True)
        assert "They sign with k1: list its file first in kafka.signing.key_files" in other.stderr
        variables = as_variables(place, "required", "k1", "k2")
        made = await invoke(place, *RECOVER, **variables)
        assert made.exit_code == 0, made.output
        async with running(signing(place, "required", "k1", "k2")) as service:
            await job.run_batch([4])
            await job.committed([1, 2, 3, 4])
            assert conditions(service) == []
        again = await invoke(place, *RECOVER, **variables)
        assert (again.exit_code, "so it is not replaced" in again.stderr) == (2, True), again.output
    verified = await invoke(place, "replay", "verify", *STREAM, **variables)
    assert verified.exit_code == 0, verified.output
    assert read_ids(place.table) == [1, 2, 3, 4]
