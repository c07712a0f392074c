"""What replays and the search for orphans advise is followed here, and the table is exact then."""

import os
import shutil
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from sluicegate.coordinator.core import state_record
from sluicegate.coordinator.core.state_record import RECORD_VERSION, StateRecord, encode_record
from sluicegate.coordinator.replay import tables
from sluicegate.coordinator.stream.records import read_held
from sluicegate.events.envelope import partition_of
from sluicegate.events.models import CutDecided
from sluicegate.kafka.clients import started
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import Absent, CommitRequest, Conflict, Publication, Published
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import (
    PARTITIONS,
    create_table,
    delete_records,
    make_topics,
    read_events,
    read_ids,
)
from tests.integration.orders import ADOPTION, invoke_here
from tests.integration.test_replay import (
    REBUILD,
    REPAIR,
    USER,
    VERIFY,
    forget,
    output,
    publish,
    put_base_record,
    three_commits,
    verified,
)
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
ORPHANS = ("orphans", "list", "--stream", "flights", "--grace", "1ms")


async def refusal(place: Place, *arguments: str) -> str:
    """What a command says that is refused."""
    result = await invoke_here(place, *arguments)
    assert result.exit_code == 2, result.output
    return result.stderr


def publish_as(table: str, user: str, decision: int, digest: str) -> None:
    """Commit on the head of a table."""
    committer = ADAPTER.open_committer(ADAPTER.parse_table(table), user)
    asked = committer.ask(decision, digest, committer.inspect().identity, None)
    assert isinstance(asked, Absent), asked
    assert isinstance(committer.publish(CommitRequest(decision, digest, asked.head, None, [])), Published)
    committer.close()


@pytest.mark.parametrize("way", ["rolled back", "adopted"])
async def test_other_content_is_settled_by_what_is_told(place: Place, way: str) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        forget(Path(place.table), 3)
        publish(place.table, 3, "made elsewhere")
        told = await refusal(place, *ORPHANS)
        assert "nothing is known of orphans before that is resolved" in told
        assert "sluicegate replay verify --stream flights" in told
        told = await refusal(place, *REPAIR)
        assert "another deployment commits as the same commit user, or this log was restored" in told
        assert (await verified(place))[1]["counts"]["other content"] == 1
        if way == "rolled back":
            # The other one is stopped, and what it committed is rolled back.
            forget(Path(place.table), 3)
            await output(place, *REPAIR)
            await output(place, *ORPHANS)
        else:
            (adopt,) = ADOPTION.findall(told)
            told = await refusal(place, *adopt.split())
            assert "The last event `cut.decided` whose commit is in the table has them" in told
            log = await read_events(place.bootstrap, place.topics.events)
            decided = [each.body for each in log if isinstance(each.body, CutDecided)]
            at = decided[1].cut["r1"]
            stated = f"r1={at.incarnation}:{at.checkpoint}:{at.digest}"
            assert "continues after decision 3" in await output(place, *adopt.split(), "--position", stated)
            async with running(place.settings()):
                assert (await job.begin("after-the-adoption")).accepted
                await job.run_batch([3])
                await job.committed([1, 2, 3])
        assert (await verified(place))[0] == 0
        assert read_ids(place.table) == [1, 2, 3]


async def test_what_is_doubled_is_settled_by_what_verify_tells(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
    digest = ADAPTER.open_maintenance(ADAPTER.parse_table(place.table)).history().commits[0].digest
    assert digest is not None
    publish(place.table, 3, digest)
    told = await refusal(place, *REPAIR)
    assert "is in the table more than once (snapshots 3, 4). See: sluicegate replay verify" in told
    assert (await verified(place))[1]["counts"]["doubled"] == 1
    forget(Path(place.table), 4)
    assert "nothing is missing" in await output(place, *REPAIR)
    assert (await verified(place))[0] == 0
    assert read_ids(place.table) == [1, 2, 3]


async def test_a_gap_that_cannot_be_filled_is_left_behind_in_a_fresh_table(place: Place) -> None:
    """Someone put back the last decision alone after the table was rolled back."""
    async with place.job() as job:
        await three_commits(place, job)
    digest = ADAPTER.open_maintenance(ADAPTER.parse_table(place.table)).history().commits[0].digest
    assert digest is not None
    forget(Path(place.table), 2, 3)
    publish(place.table, 3, digest)
    told = (await invoke_here(place, *VERIFY)).stdout
    assert "Later decisions are there: build a fresh table with sluicegate replay rebuild" in told
    told = await refusal(place, *REPAIR)
    assert "decision 2 is not in the table, but 3 is" in told
    assert "Build a fresh table: sluicegate replay rebuild --stream flights --into TABLE" in told
    fresh = str(place.root / "db.db" / "fresh")
    await output(place, *REBUILD, "--into", fresh)
    assert read_ids(fresh) == [1, 2, 3]


async def test_orphans_are_deleted_by_the_command_that_the_list_names(place: Place) -> None:
    async with place.job() as job, running(place.settings()):
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        discarded = job.write_files([99])
        await job.written(discarded)
        assert (await job.begin("q2")).accepted
        await job.run_batch([2])
        await job.committed([1, 2])
        await until(job.notifications, lambda seen: sum("commit" in each.type for each in seen) == 2)
    told = await output(place, *ORPHANS)
    assert discarded.files[0].path in told
    assert "To delete them: sluicegate orphans delete --stream flights" in told
    await output(place, "orphans", "delete", "--stream", "flights", "--grace", "1ms")
    assert not (Path(place.table) / discarded.files[0].path).exists()
    assert read_ids(place.table) == [1, 2]


async def test_a_replaced_table_is_put_back(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        os.rename(place.table, place.root / "old")
        create_table(place.root)
        result = await invoke_here(place, "check")
        assert result.exit_code == 1, result.output
        assert "the table is another one (" in result.stdout
        assert ") than that with which the stream began" in result.stdout
        assert "Put the former table back" in result.stdout
        shutil.rmtree(place.table)
        os.rename(place.root / "old", place.table)
        assert (await invoke_here(place, "check")).exit_code == 0
        async with running(place.settings()):
            await job.run_batch([4])
            await job.committed([1, 2, 3, 4])


@pytest.mark.parametrize(
    ("user", "advice"),
    [
        ("somebody", "is not empty: it has commits of somebody. Name a fresh table"),
        (USER, "is not empty: it has another commit 1 (other content). Name a fresh table"),
    ],
)
async def test_a_fresh_table_is_named(place: Place, user: str, advice: str) -> None:
    async with place.job() as job:
        await three_commits(place, job)
    used, fresh = create_table(place.root, "used"), str(place.root / "db.db" / "fresh")
    publish_as(used, user, 1, "made elsewhere")
    own = await refusal(place, *REBUILD, "--into", place.table)
    assert "this is the stream's own table. Name another one" in own
    assert advice in await refusal(place, *REBUILD, "--into", used)
    await output(place, *REBUILD, "--into", fresh)
    assert read_ids(fresh) == [1, 2, 3]


async def test_a_race_that_others_won_is_run_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with place.job() as job:
        await three_commits(place, job)
    forget(Path(place.table), 3)
    commit, lost = PaimonCommitter.publish, list[Publication]()

    def outrun(self: PaimonCommitter, request: CommitRequest) -> Publication:
        """Others commit first, each time."""
        monkeypatch.setattr(PaimonCommitter, "publish", commit)
        publish_as(place.table, "somebody", len(lost) + 1, "theirs")
        monkeypatch.setattr(PaimonCommitter, "publish", outrun)
        lost.append(commit(self, request))
        return lost[-1]

    monkeypatch.setattr(PaimonCommitter, "publish", outrun)
    monkeypatch.setattr(tables, "MOST_RETRIES", 3)
    assert "Try again when fewer others write to the table" in await refusal(place, *REPAIR)
    assert [type(each) for each in lost] == [Conflict] * 3
    monkeypatch.undo()
    await output(place, *REPAIR)
    assert read_ids(place.table) == [1, 2, 3]


async def test_an_upgraded_release_replays_after_the_record_of_a_newer_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        options = place.settings().kafka.client_options()
        held = (await read_held(place.topics.state, PARTITIONS, options, ["flights"], 20.0))["flights"].record
        assert isinstance(held, StateRecord)
        newer = held.model_copy(update={"version": RECORD_VERSION + 1})
        await job.producer.send_and_wait(
            place.topics.state, encode_record(newer), b"flights", partition_of("flights", PARTITIONS)
        )
    told = await refusal(place, *VERIFY)
    assert "Upgrade" in told
    monkeypatch.setattr(state_record, "RECORD_VERSION", RECORD_VERSION + 1)
    status, found = await verified(place)
    assert (status, found["counts"]["there"]) == (0, 3)


async def test_a_log_that_is_kept_longer_the_next_time_is_replayed(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        await job.run_batch([4])
    await delete_records(place.bootstrap, place.topics.events, "flights")
    told = await refusal(place, *VERIFY)
    assert "From now on, set retention.ms of the events topic to -1" in told
    # The next time: new topics, a new table, and a log that is kept for good.
    topics = await make_topics(place.bootstrap, f"{place.prefix}-next")
    table = create_table(place.root, "next")
    following = Place(place.bootstrap, f"{place.prefix}-next", topics, place.root, table)
    async with started(AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)) as admin:
        wanted = {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topics.events, wanted)])
    async with following.job() as job:
        await three_commits(following, job)
    status, found = await verified(following)
    assert (status, found["counts"]["there"]) == (0, 3)
    assert read_ids(table) == [1, 2, 3]


async def test_a_table_whose_log_is_gone_is_moved_as_a_folder(place: Place) -> None:
    moved = place.root / "moved" / "db.db" / "flights"
    async with place.job() as job:
        await three_commits(place, job)
        await put_base_record(place, job)
        async with running(place.settings()):
            await job.run_batch([4])
            await job.committed([1, 2, 3, 4])
    told = await refusal(place, *REBUILD, "--into", str(place.root / "again"))
    assert "To move the table, copy its whole folder" in told
    shutil.copytree(place.table, moved)
    assert read_ids(str(moved)) == [1, 2, 3, 4]
