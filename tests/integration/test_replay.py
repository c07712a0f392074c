"""Replay against a real log and a real table: verified, repaired, and built again elsewhere."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.stream.records import read_held
from sluicegate.coordinator.stream.state_records import encode_record
from sluicegate.events.envelope import partition_of
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.port import Absent, CommitRequest, Published
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, Job, delete_records, expire, read_ids, rewrite
from tests.integration.orders import invoke, invoke_here
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

STREAM = ("--stream", "flights")
VERIFY = ("replay", "verify", *STREAM)
REPAIR = ("replay", "repair", *STREAM)
REBUILD = ("replay", "rebuild", *STREAM)
USER = "sluicegate-flights"


async def three_commits(place: Place, job: Job) -> None:
    async with running(place.settings()):
        assert (await job.register()).accepted
        for number in (1, 2, 3):
            await job.commit([number], range(1, number + 1))
        # The outcome is in the log once it is announced.
        await until(job.notifications, lambda seen: sum("commit" in each.type for each in seen) == 3)


async def output(place: Place, *arguments: str) -> str:
    """Return what a command printed that succeeded."""
    result = await invoke_here(place, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


async def verified(place: Place, *more: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status, and what was found."""
    result = await invoke_here(place, *VERIFY, "--json", *more)
    return result.exit_code, json.loads(result.stdout or "{}")


def forget(table: Path, *snapshots: int) -> None:
    """Roll the table back, as a person does with the files."""
    for number in snapshots:
        (table / "snapshot" / f"snapshot-{number}").unlink()
    (table / "snapshot" / "LATEST").unlink(missing_ok=True)


def publish(table: str, decision: int, digest: str) -> None:
    """Commit in the stream's name, as another deployment does."""
    committer = ADAPTER.open_committer(ADAPTER.parse_table(table), USER)
    head = committer.inspect().head
    made = committer.publish(CommitRequest(decision, digest, head, None, []))
    assert isinstance(made, Published)


async def test_a_table_is_verified_through_compaction_and_expiry(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        status, found = await verified(place)
        assert (status, found["counts"]["there"], found["different"]) == (0, 3, False)
        assert (found["first"], found["last"], found["history_whole"]) == (1, 3, True)
        rewrite(place.table)
        assert (await verified(place))[0] == 0
        expire(place.table, keep=2)
        status, found = await verified(place)
        assert (status, found["counts"]["there"], found["counts"]["expired"]) == (0, 1, 2)
        expire(place.table, keep=1)
        status, found = await verified(place)
        assert (status, found["counts"]["there"], found["counts"]["unknown"]) == (0, 0, 3)
        assert "Nothing proves that they are in the table" in found["not_proven"][0]
        assert read_ids(place.table) == [1, 2, 3]


@pytest.mark.seam
async def test_what_a_rolled_back_table_lacks_is_committed_again_and_the_stream_continues(
    place: Place,
) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        forget(Path(place.table), 2, 3)
        result = await invoke_here(place, *VERIFY)
        assert result.exit_code == 1
        assert "MISSING  decision 2" in result.stdout
        assert "sluicegate replay repair --stream flights" in result.stdout
        dry = json.loads(await output(place, *REPAIR, "--dry-run", "--json"))
        assert [each["decision"] for each in dry["committed"]] == [2, 3]
        assert read_ids(place.table) == [1]
        async with running(place.settings()):
            refused = await invoke(place, *REPAIR)
            assert (refused.exit_code, "1 coordinator runs" in refused.stderr) == (2, True)
        assert "decision 4 is absent up to snapshot 3" in await output(place, *REPAIR)
        assert read_ids(place.table) == [1, 2, 3]
        assert (await verified(place))[0] == 0
        again = await output(place, *REPAIR)
        assert "nothing is missing" in again
        async with running(place.settings()):
            await job.commit([4], [1, 2, 3, 4])
        assert (await verified(place))[1]["counts"]["there"] == 4


def relative(path: Path) -> str:
    return os.path.relpath(path)


async def test_a_fresh_table_has_the_same_commits(place: Place) -> None:
    target = place.root / "db.db" / "again"
    async with place.job() as job:
        await three_commits(place, job)
    dry = json.loads(await output(place, *REBUILD, "--into", str(target), "--dry-run", "--json"))
    assert (dry["commits"], dry["files"], target.exists()) == (3, 3, False)
    refused = await invoke_here(place, *REBUILD, "--into", place.table)
    assert (refused.exit_code, "the stream's own table" in refused.stderr) == (2, True)
    made = json.loads(await output(place, *REBUILD, "--into", str(target), "--json"))
    assert (made["commits"], made["found"]) == (3, 0)
    assert read_ids(str(target)) == read_ids(place.table) == [1, 2, 3]
    old, new = (
        ADAPTER.open_maintenance(ADAPTER.parse_table(each)).history() for each in (place.table, str(target))
    )
    assert [(each.decision, each.digest) for each in new.commits] == [
        (each.decision, each.digest) for each in old.commits
    ]
    assert new.identity != old.identity
    forget(target, 3)
    made = json.loads(await output(place, *REBUILD, "--into", relative(target), "--json"))
    assert (made["commits"], made["found"]) == (1, 2)
    assert read_ids(str(target)) == [1, 2, 3]
    publish(str(target), 4, "somebody's")
    committer = ADAPTER.open_committer(ADAPTER.parse_table(str(target)), "somebody")
    asked = committer.ask(1, "x", new.identity, None)
    assert isinstance(asked, Absent)
    committer.publish(CommitRequest(1, "x", asked.head, None, []))
    refused = await invoke_here(place, *REBUILD, "--into", str(target))
    assert (refused.exit_code, "is not empty" in refused.stderr) == (2, True)


async def put_base_record(place: Place, job: Job) -> int:
    """Delete the log up to the state record's low-water mark, with a base record; return the mark."""
    held = (await read_held(place.settings().kafka, PARTITIONS, ["flights"]))["flights"].record
    assert isinstance(held, StateRecord)
    key = f"flights/{held.low_water}".encode()
    home = partition_of("flights", PARTITIONS)
    await job.producer.send_and_wait(place.topics.state, encode_record(held), key, home)
    await delete_records(place.bootstrap, place.topics.events, "flights", held.low_water)
    return held.low_water


async def test_a_log_without_its_start_is_read_from_a_base_record(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        begin = await put_base_record(place, job)
        async with running(place.settings()):
            await job.commit([4], [1, 2, 3, 4])
            await until(job.notifications, lambda seen: sum("commit" in each.type for each in seen) == 4)
    status, found = await verified(place)
    assert (status, found["first"], found["last"]) == (0, 4, 4)
    assert (found["read_from"], found["not_judged"]) == (begin, 3)
    forget(Path(place.table), 4)
    assert (await verified(place))[0] == 1
    assert "was committed: decision 4" in await output(place, *REPAIR)
    assert read_ids(place.table) == [1, 2, 3, 4]
    target = str(place.root / "db.db" / "again")
    refused = await invoke_here(place, *REBUILD, "--into", target)
    assert (refused.exit_code, "would lack decisions 1 to 3" in refused.stderr) == (2, True)
    await output(place, *REBUILD, "--into", target, "--incomplete")
    assert read_ids(target) == [4]
    # Nothing reads the rows of the first decisions again, so nobody goes on in that table without a word.
    adopted = await invoke(place, "stream", "adopt", "--stream", "flights", STREAMS__FLIGHTS__TABLE=target)
    assert (adopted.exit_code, "lacks decisions 1 to 3" in adopted.stderr) == (2, True), adopted.output
    forget(Path(place.table), 2, 3, 4)
    status, found = await verified(place)
    assert (status, [each["decision"] for each in found["findings"]]) == (1, [2, 3, 4])
    refused = await invoke_here(place, *REPAIR)
    assert (refused.exit_code, "the table ends with decision 1" in refused.stderr) == (2, True)
    forget(Path(place.table), 1)
    refused = await invoke_here(place, *REPAIR)
    assert (refused.exit_code, "the table ends with no decision" in refused.stderr) == (2, True)
    assert read_ids(place.table) == []
