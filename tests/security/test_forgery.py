"""A job may write to the events topic: decisions and orders that it forges have no effect."""

import json
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from operator import not_
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka import ConsumerRecord

from sluicegate.cli.local.process import free_port
from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.settings.model import Settings, SigningSettings
from sluicegate.events.codec import read_record
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType, partition_of
from sluicegate.events.models import Body, CutCommitted, CutReverted, SnapshotRef, StreamCommand, StreamPolicy
from sluicegate.events.problems import Code
from sluicegate.events.signing import SIGNED, is_signed
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, Job, read_ids, read_records
from tests.integration.letters import codes, conditions, put_raw, source, stalled
from tests.integration.metrics import metrics_of
from tests.integration.orders import die_at, invoke
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

STREAM: Final = ("--stream", "flights")
KEYS: Final = {"k1": "11" * 32, "k2": "22" * 32}


def key_files(folder: Path, *names: str) -> list[Path]:
    for name in names:
        (folder / f"{name}.key").write_text(f"{KEYS[name]}\n")
    return [folder / f"{name}.key" for name in names]


def signing(place: Place, mode: str, *keys: str, **more: Any) -> Settings:
    """Settings of a coordinator that signs with the first key."""
    settings = place.settings()
    given = {"mode": mode, "key_files": key_files(place.root, *(keys or ("k1",))), **more}
    kafka = settings.kafka.model_copy(update={"signing": SigningSettings.model_validate(given)})
    return settings.model_copy(update={"kafka": kafka})


def as_variables(place: Place, mode: str, *keys: str) -> dict[str, str]:
    """The same for a command."""
    files = ",".join(map(str, key_files(place.root, *(keys or ("k1",)))))
    return {"KAFKA__SIGNING__MODE": mode, "KAFKA__SIGNING__KEY_FILES": files}


async def log_of(place: Place) -> list[ConsumerRecord]:
    """Every record of the stream's partition."""
    home = partition_of("flights", PARTITIONS)
    found = await read_records(place.bootstrap, place.topics.events)
    return [each for each in found if each.partition == home]


async def forge(job: Job, kind: EventType, body: Body) -> int:
    """Append a record as only a coordinator or an operator may; return its offset."""
    made = encode_event(Envelope(uuid.uuid4().hex, kind, job.stream), body, _now())
    return await put_raw(job, made.value, dict(made.headers))


def _now() -> int:
    return round(datetime.now(UTC).timestamp() * 1000)


async def replica_of(place: Place) -> Replica:
    """The state that everyone with access to the log can compute."""
    replica = Replica("flights", partition_of("flights", PARTITIONS))
    for raw in await log_of(place):
        record = read_record(raw.offset, raw.timestamp, raw.headers, raw.value).record
        assert record is not None
        replica.step(record)
    return replica


async def forge_a_commit(place: Place, job: Job) -> list[int]:
    """Forge the next decision and its outcome, so that its files seem to be in the table."""
    replica = await replica_of(place)
    made = cuts.decision(replica.log, {"r1": replica.log.sealed("r1")[-1].position})
    snapshot = replica.state.snapshot
    assert snapshot is not None
    outcome = CutCommitted(
        decision=made.decision, digest=made.digest, table=replica.state.table or "", snapshot=snapshot
    )
    made = made.model_copy(update={"head": snapshot})
    return [await forge(job, EventType.CUT_DECIDED, made), await forge(job, EventType.CUT_COMMITTED, outcome)]


@pytest.mark.parametrize("mode", ["accepted", "required"])
async def test_a_forged_commit_stops_a_stream_only_without_signatures(place: Place, mode: str) -> None:
    """The first case shows that the attack works where nothing is refused: the stream stalls."""
    async with place.job() as job:
        async with running(signing(place, mode)):
            await job.begin_with_a_commit()
            # The outcome follows the commit.
            await until(lambda: replica_of(place), lambda found: found.state.unresolved is None)
        await job.run_batch([2])
        forged = await forge_a_commit(place, job)
        async with running(signing(place, mode), ready=False) as service:
            await job.run_batch([3])
            if mode == "accepted":
                await until(lambda: stalled(service), lambda code: code == Code.TABLE_CONTRADICTS)
                text = await metrics_of(service)
                assert 'sluicegate_not_signed_total{cause="unsigned"} 2' in text
                return
            await job.committed([1, 2, 3])
            assert await until(lambda: codes(job), lambda seen: len(seen) == 2) == [
                (source(job, offset), Code.SIGNATURE) for offset in forged
            ]
    declared = (*STREAM, "--forged", "unsigned")
    verified = await invoke(place, "replay", "verify", *declared, **as_variables(place, mode))
    assert verified.exit_code == 0, verified.output


def orders(replica: Replica) -> list[tuple[EventType, Body]]:
    """One forgery of each type, that a coordinator without signatures obeys or ignores."""
    table, head = replica.state.table or "", SnapshotRef(id=9, identity="forged")
    number = replica.state.policy.number
    decided = replica.state.decided
    commands = [
        StreamCommand(command="pause"),
        StreamCommand(command="discard", region="r1", number=0),
        StreamCommand(command="close", number=0),
        StreamCommand(command="resume", decision=decided + 1, head=head),
        StreamCommand(command="drain", name="forged"),
    ]
    return [
        (EventType.STREAM_POLICY, StreamPolicy(number=number + 5, allowed_locations=("file:///else",))),
        *((EventType.STREAM_COMMAND, each) for each in commands),
        (EventType.CUT_COMMITTED, CutCommitted(decision=decided, digest="d", table=table, snapshot=head)),
        (EventType.CUT_REVERTED, CutReverted(decision=decided, digest="d", table=table)),
    ]


@pytest.mark.seam
async def test_no_forged_order_has_an_effect(place: Place) -> None:
    async with running(signing(place, "required")) as service, place.job() as job:
        await job.begin_with_a_commit()
        forgeries = orders(await replica_of(place))
        forged = [await forge(job, kind, body) for kind, body in forgeries]
        await job.commit([2], [1, 2])
        found = await until(lambda: codes(job), lambda seen: len(seen) == len(forged))
        assert found == [(source(job, offset), Code.SIGNATURE) for offset in forged]
        assert not service.status()["streams"]["flights"].get("paused")
        variables = as_variables(place, "required")
        # The commands read the same log, so a forged pause is none for them either.
        listed = await invoke(place, "dead-letters", "list", "--json", **variables)
        assert {each["code"] for each in json.loads(listed.stdout)["letters"]} == {"signature"}
        at = str(json.loads(listed.stdout)["letters"][0]["offset"])
        again = await invoke(place, "dead-letters", "retry", "--offset", at, **variables)
        assert again.exit_code != 0
        assert "it has no signature" in " ".join(again.output.split())
    verified = await invoke(place, "replay", "verify", *STREAM, "--forged", "unsigned", **variables)
    assert verified.exit_code == 0, verified.output
    assert read_ids(place.table) == [1, 2]


async def test_copies_of_signed_records_change_nothing_in_the_table(place: Place) -> None:
    """Somebody who may also read the log appends every signed record again."""
    async with running(signing(place, "required")) as service, place.job() as job:
        await job.register()
        for number in (1, 2):
            await job.commit([number], [*range(1, number + 1)])
        signed = [each for each in await log_of(place) if is_signed(each.headers)]
        kinds = {dict(each.headers)["ce_type"] for each in signed}
        assert kinds >= {b"sluicegate.cut.decided.v5", b"sluicegate.stream.policy.v5"}
        for each in signed:
            await put_raw(job, each.value, dict(each.headers))
        await job.commit([3], [1, 2, 3])
        assert service.status()["streams"]["flights"]["conditions"] == []
        assert await codes(job) == []
    verified = await invoke(place, "replay", "verify", *STREAM, **as_variables(place, "required"))
    assert verified.exit_code == 0, verified.output


def types_without_signature(log: Sequence[ConsumerRecord], since: int) -> set[str]:
    """Return the types of decisions and orders from an offset on that are not signed."""
    found = set()
    for each in log:
        kind = dict(each.headers)["ce_type"].decode().removeprefix("sluicegate.").removesuffix(".v5")
        if each.offset >= since and kind in {*SIGNED} and not is_signed(each.headers):
            found.add(kind)
    return found


STEPS: Final[tuple[tuple[str, tuple[str, ...], bool], ...]] = (
    ("off", ("k1",), False),
    ("accepted", ("k1",), False),
    ("required", ("k1",), True),
    ("required", ("k1", "k2"), True),
    ("required", ("k2", "k1"), True),
)
"""Mode and keys of a member, and whether records from before the signing need no signature."""


async def test_signing_is_introduced_and_its_key_is_changed_without_a_stop(place: Place) -> None:
    """Two members run, and are restarted one after the other. Each step has members of two kinds."""
    async with place.job() as job:
        rows: list[int] = []

        async def works() -> None:
            rows.append(len(rows) + 1)
            await job.run_batch([rows[-1]])
            await job.committed(rows)

        first, since, begin = signing(place, "off"), datetime.now(UTC), 0
        async with running(first):
            await job.register()
            await works()
        for older, newer in pairwise(STEPS):
            if (older[0], newer[0]) == ("accepted", "required"):
                # Every member signs from here on.
                since, begin = datetime.now(UTC), (await log_of(place))[-1].offset + 1
            before, after = (
                signing(place, mode, *keys, since=since if late else None)
                for mode, keys, late in (older, newer)
            )
            async with running(before):
                async with running(after):
                    await works()
                await works()
            async with running(after):
                async with running(before):
                    await works()
                await works()
        assert await codes(job) == []
        assert types_without_signature(await log_of(place), begin) == set()
    found = await invoke(place, "replay", "verify", *STREAM, **as_variables(place, "accepted", "k2", "k1"))
    assert found.exit_code == 0, found.output


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
            await job.begin_with_a_commit()
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
            await job.commit([2], [1, 2])
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
            await job.begin_with_a_commit()
        await job.run_batch([2])
        variables = as_variables(place, "required", "k2", "k1")
        await die_at(place, point, **variables)
        async with running(signing(place, "required", "k1"), ready=False) as service:
            assert await until(lambda: codes(job))
            await job.run_batch([3])
            # Where the table has the decision, the stream stalls. Else the successor makes the same one.
            seen = await until(lambda: stalled(service) or read_ids(place.table)[2:])
            assert seen == ([3] if point == "append-decision.after" else Code.TABLE_AHEAD)
        assert len(read_ids(place.table)) == len({*read_ids(place.table)})
        async with running(signing(place, "required", "k1", "k2")) as service:
            await job.commit([4], [1, 2, 3, 4])
            assert conditions(service) == []
    verified = await invoke(place, "replay", "verify", *STREAM, **variables)
    assert verified.exit_code == 0, verified.output


ORDERS = (
    ("stream", "pause", *STREAM),
    ("stream", "savepoint", *STREAM, "--name", "s1"),
    ("region", "remove", *STREAM, "--region", "r1"),
    ("orphans", "delete", *STREAM),
)


def renamed(folder: Path, name: str, content: str) -> dict[str, str]:
    """Settings of a command whose key has the id of another one."""
    (folder / "other").mkdir(exist_ok=True)
    file = folder / "other" / f"{name}.key"
    file.write_text(KEYS[content])
    return {"KAFKA__SIGNING__MODE": "required", "KAFKA__SIGNING__KEY_FILES": str(file)}


UNVERIFIED = "cannot be verified"
"""A log that the command cannot verify is a reason of its own for `orphans`: its files are not known."""


async def refused(place: Place, variables: dict[str, str], text: str, *, orphans: str | None = None) -> None:
    """Give each order; nothing of it reaches the log. `orphans`: its reason, if another."""
    before = len(await log_of(place))
    for order in ORDERS:
        result = await invoke(place, *order, **variables)
        assert result.exit_code == 2, (order, result.output)
        said = " ".join(result.stderr.split())
        assert ((order[0] == "orphans" and orphans) or text) in said, (order, result.stderr)
    assert len(await log_of(place)) == before
    assert not (await replica_of(place)).state.paused


async def test_an_order_needs_a_key_that_the_coordinators_take(place: Place) -> None:
    """The same holds while a coordinator runs and after its end, from its state record."""
    way_out = "list its file first in kafka.signing.key_files of this command"
    retired = {"k1": datetime.now(UTC)}
    settings = signing(place, "required", "k2", "k1", retired=retired)
    unknown = {**renamed(place.root, "k9", "k1")}
    other = {**renamed(place.root, "k2", "k1")}
    cases = (
        (unknown, "the key k9, which is unknown at", UNVERIFIED),
        (other, "the key k2, whose content is another one at", UNVERIFIED),
        (as_variables(place, "required", "k1", "k2"), "the key k1, which is retired at", None),
        (as_variables(place, "off"), "kafka.signing.mode and kafka.signing.key_files", None),
    )
    async with place.job() as job:
        async with running(settings):
            await job.begin_with_a_commit()
            await until(lambda: replica_of(place), lambda found: found.state.unresolved is None)
            for variables, text, orphans in cases:
                await refused(place, variables, text, orphans=orphans)
            result = await invoke(place, "stream", "pause", *STREAM, **unknown)
            assert f"They sign with k2: {way_out}" in " ".join(result.stderr.split())
        for variables, text, orphans in cases:
            await refused(place, variables, text, orphans=orphans)
        assert await codes(job) == []
        # The advised way out.
        async with running(settings):
            for named in ("pause", "resume"):
                command = ("stream", named, *STREAM)
                done = await invoke(place, *command, **as_variables(place, "required", "k2", "k1"))
                assert done.exit_code == 0, done.output
