"""Replay against a real log and a real table: verified, mended, and made again elsewhere."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sluicegate.events.models import Parent
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import Absent, CommitRequest, Publication, Published, Refused
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, create_table, delete_records, expire, read_ids, rewrite
from tests.integration.letters import stalls
from tests.integration.orders import invoke, invoke_here
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

REPLAY = ("replay", "--stream", "flights")
USER = "sluicegate-flights"


async def three_commits(place: Place, job: Job) -> None:
    async with running(place.settings()):
        await job.open()
        for number in (1, 2, 3):
            await job.run_batch([number])
            await job.committed(range(1, number + 1))


async def spoken(place: Place, *arguments: str) -> str:
    """What a command printed that succeeded."""
    said = await invoke_here(place, *arguments)
    assert said.exit_code == 0, said.output
    return said.stdout


async def verified(place: Place, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit status, and what was found."""
    said = await invoke_here(place, *REPLAY, "--verify", "--json", *more)
    return said.exit_code, json.loads(said.stdout or "{}")


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
        assert "Neither that they are in the table" in found["not_proven"][0]
        assert read_ids(place.table) == [1, 2, 3]


async def test_what_follows_from_a_later_commit_is_said(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
    expire(place.table, keep=1)
    said = await invoke_here(place, *REPLAY, "--verify")
    assert said.exit_code == 0
    assert "1 are in the table" in said.stdout
    assert "2 cannot be looked up" in said.stdout
    assert "follows from decision 3" in said.stdout
    assert "as far as it can be proven" in said.stdout


async def test_a_range_is_chosen_by_checkpoint_offset_and_time(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
    _, found = await verified(place, "--from", "checkpoint:r1/1", "--to", "checkpoint:r1/q1.0/1")
    assert (found["first"], found["last"]) == (2, 2)
    said = await spoken(place, *REPLAY, "--dry-run", "--json")
    decisions = json.loads(said)["decisions"]
    assert [each["standing"] for each in decisions] == ["there"] * 3
    _, found = await verified(place, "--from", f"offset:{decisions[1]['offset']}")
    assert (found["first"], found["last"]) == (2, 3)
    _, found = await verified(place, "--to", f"time:{decisions[0]['time']}")
    assert (found["first"], found["last"]) == (1, 1)
    missing = await invoke_here(place, *REPLAY, "--verify", "--from", "checkpoint:r1/77")
    assert (missing.exit_code, "no decision of the log includes checkpoint 77" in missing.stderr) == (2, True)


async def test_what_a_rolled_back_table_lacks_is_committed_again_where_its_beginning_has_expired(
    place: Place,
) -> None:
    async with place.job() as job:
        await three_commits(place, job)
    forget(Path(place.table), 3)
    expire(place.table, keep=1)
    await spoken(place, *REPLAY, "--commit-missing")
    assert read_ids(place.table) == [1, 2, 3]


async def test_what_a_rolled_back_table_lacks_is_committed_again_and_the_stream_goes_on(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        forget(Path(place.table), 2, 3)
        said = await invoke_here(place, *REPLAY, "--verify")
        assert said.exit_code == 1
        assert "MISSING  decision 2" in said.stdout
        assert "sluicegate replay --stream flights --commit-missing" in said.stdout
        dry = json.loads(await spoken(place, *REPLAY, "--commit-missing", "--dry-run", "--json"))
        assert [each["decision"] for each in dry["committed"]] == [2, 3]
        assert read_ids(place.table) == [1]
        async with running(place.settings()):
            refused = await invoke(place, *REPLAY, "--commit-missing")
            assert (refused.exit_code, "1 coordinator runs" in refused.stderr) == (2, True)
        told = await spoken(place, *REPLAY, "--commit-missing")
        assert "it names snapshot 3 now" in told
        assert read_ids(place.table) == [1, 2, 3]
        assert (await verified(place))[0] == 0
        again = await spoken(place, *REPLAY, "--commit-missing")
        assert "nothing is missing" in again
        async with running(place.settings()):
            await job.run_batch([4])
            await job.committed([1, 2, 3, 4])
        assert (await verified(place))[1]["counts"]["there"] == 4


async def test_doubled_and_foreign_commits_and_other_content_are_differences(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
    _, found = await verified(place)
    said = json.loads(await spoken(place, *REPLAY, "--dry-run", "--json"))
    publish(place.table, 3, said["decisions"][-1]["digest"])
    publish(place.table, 9, "made elsewhere")
    status, found = await verified(place)
    assert (status, found["counts"]["doubled"], found["counts"]["there"]) == (1, 1, 2)
    assert found["foreign"] == [{"decision": 9, "snapshot": 5, "digest": "made elsewhere"}]
    refused = await invoke_here(place, *REPLAY, "--commit-missing")
    assert (refused.exit_code, "more than once" in refused.stderr) == (2, True)


async def test_another_content_under_a_decisions_id_is_told(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
    forget(Path(place.table), 3)
    publish(place.table, 3, "made elsewhere")
    status, found = await verified(place)
    assert (status, found["counts"]["other content"], found["counts"]["there"]) == (1, 1, 2)
    refused = await invoke_here(place, *REPLAY, "--commit-missing")
    assert (refused.exit_code, "other content" in refused.stderr) == (2, True)


async def test_a_replaced_table_is_a_difference_and_is_not_filled(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
    os.rename(place.table, place.root / "old")
    create_table(place.root)
    status, found = await verified(place)
    assert (status, found["table_replaced"], found["counts"]["missing"]) == (1, True, 3)
    refused = await invoke_here(place, *REPLAY, "--commit-missing")
    assert (refused.exit_code, "the table was replaced" in refused.stderr) == (2, True)


def relative(path: Path) -> str:
    return os.path.relpath(path)


async def test_a_fresh_table_has_the_same_cuts(place: Place) -> None:
    target = place.root / "db.db" / "again"
    async with place.job() as job:
        await three_commits(place, job)
    dry = json.loads(await spoken(place, *REPLAY, "--into", str(target), "--dry-run", "--json"))
    assert (dry["commits"], dry["files"], target.exists()) == (3, 3, False)
    refused = await invoke_here(place, *REPLAY, "--into", place.table)
    assert (refused.exit_code, "the stream's own table" in refused.stderr) == (2, True)
    made = json.loads(await spoken(place, *REPLAY, "--into", str(target), "--json"))
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
    made = json.loads(await spoken(place, *REPLAY, "--into", relative(target), "--json"))
    assert (made["commits"], made["found"]) == (1, 2)
    assert read_ids(str(target)) == [1, 2, 3]
    publish(str(target), 4, "somebody's")
    committer = ADAPTER.open_committer(ADAPTER.parse_table(str(target)), "somebody")
    asked = committer.ask(1, "x", new.identity, None)
    assert isinstance(asked, Absent)
    committer.publish(CommitRequest(1, "x", asked.head, None, []))
    refused = await invoke_here(place, *REPLAY, "--into", str(target))
    assert (refused.exit_code, "is not empty" in refused.stderr) == (2, True)


async def test_files_that_are_gone_cannot_be_copied(place: Place) -> None:
    async with place.job() as job, running(place.settings()):
        await job.open()
        await job.run_batch([1])
        await job.committed([1])
        files = job.write_files([2])
        await job.complete(await job.written(files))
        await job.committed([1, 2])
    (Path(place.table) / files.files[0].path).unlink()
    for extra in (("--dry-run",), ()):
        said = await invoke_here(place, *REPLAY, "--into", str(place.root / "again"), *extra)
        assert said.exit_code == 2
        assert "decision 2 cannot be made again" in said.stderr
        assert "compaction has rewritten it" in said.stderr
        assert said.stderr.count(str(place.root)) == 1, "the table that lacks the file, and no other"


async def test_a_log_without_its_start_is_continued_from_the_state_record(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        await delete_records(place.bootstrap, place.topics.events, "flights")
        async with running(place.settings()):
            await job.run_batch([4])
            await job.committed([1, 2, 3, 4])
    status, found = await verified(place)
    assert (status, found["first"], found["last"]) == (0, 4, 4)
    assert "decisions 1 to 3 are not judged again" in found["note"]
    forget(Path(place.table), 4)
    assert (await verified(place))[0] == 1
    told = await spoken(place, *REPLAY, "--commit-missing")
    assert "was committed: decision 4" in told
    assert read_ids(place.table) == [1, 2, 3, 4]
    refused = await invoke_here(place, *REPLAY, "--into", str(place.root / "again"))
    assert (refused.exit_code, "needs the log from the stream's start" in refused.stderr) == (2, True)
    forget(Path(place.table), 2, 3, 4)
    status, found = await verified(place)
    assert (status, [each["decision"] for each in found["findings"]]) == (1, [2, 3, 4])
    refused = await invoke_here(place, *REPLAY, "--commit-missing")
    assert (refused.exit_code, "the table ends at decision 1" in refused.stderr) == (2, True)
    forget(Path(place.table), 1)
    refused = await invoke_here(place, *REPLAY, "--commit-missing")
    assert (refused.exit_code, "the table ends at nothing" in refused.stderr) == (2, True)
    assert read_ids(place.table) == []


async def test_a_range_that_skips_what_is_missing_commits_nothing(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
    forget(Path(place.table), 2, 3)
    refused = await invoke_here(place, *REPLAY, "--commit-missing", "--from", "checkpoint:r1/2")
    assert (refused.exit_code, "with --from earliest" in refused.stderr) == (2, True)
    assert read_ids(place.table) == [1]


async def test_a_void_is_verified_and_made_again_as_what_it_is(
    place: Place, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = PaimonCommitter.publish

    def refusing(self: PaimonCommitter, request: CommitRequest) -> Publication:
        return Refused("not this one") if request.decision == 2 and request.files else commit(self, request)

    async with place.job() as job, place.job(lineage="q1.1") as again, running(place.settings()):
        await job.open()
        await job.run_batch([1])
        await job.committed([1])
        monkeypatch.setattr(PaimonCommitter, "publish", refusing)
        await job.run_batch([2])
        await until(lambda: stalls(job))
        order = ("--stream", "flights", "--decision", "2", "--region", "r1", "--checkpoint", "1")
        assert (await invoke(place, "void", *order)).exit_code == 0
        monkeypatch.undo()
        assert (await again.open(Parent(region="r1", lineage="q1.0", checkpoint=0))).accepted
        await again.run_batch([3])
        await again.committed([1, 3])
    assert (await verified(place))[1]["counts"]["there"] == 3
    forget(Path(place.table), 2, 3)
    assert "voided, an empty commit" in await spoken(place, *REPLAY, "--commit-missing")
    assert read_ids(place.table) == [1, 3]
    assert (await verified(place))[0] == 0
    await spoken(place, *REPLAY, "--into", str(place.root / "db.db" / "again"))
    assert read_ids(str(place.root / "db.db" / "again")) == [1, 3]
