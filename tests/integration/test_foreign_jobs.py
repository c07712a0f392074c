"""A foreign Paimon job that was given the stream's own commit user."""

import errno
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory
from pypaimon.write.table_commit import StreamTableCommit

from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import Answer, CommitRequest, LakeUnavailable, OutcomeUnknown, Publication
from sluicegate.lakes.storage_local import LocalStorage
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import SCHEMA, expire, read_ids
from tests.integration.letters import stalls
from tests.integration.orders import invoke_here
from tests.integration.test_replay import REPAIR, USER, output, verified

pytestmark = pytest.mark.kafka


def commit_as_the_stream(location: str, number: int, ids: list[int]) -> None:
    """Commit rows with Paimon's own library, as the stream's commit user and under an own id."""
    path = Path(location)
    catalog = CatalogFactory.create({"warehouse": str(path.parents[1])})
    table = catalog.get_table(f"{path.parent.name.removesuffix('.db')}.{path.name}")
    write = table.new_stream_write_builder().new_write()
    write.write_arrow(
        pa.table({"id": ids, "origin": ["foreign"] * len(ids), "at": [None] * len(ids)}, SCHEMA)
    )
    commit = StreamTableCommit(table, USER)
    commit.commit(write.prepare_commit(number), number)
    commit.close()
    write.close()


async def test_rows_are_not_doubled_when_it_commits_under_a_lower_id(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit lands on ours, whose acknowledgement is lost: the table is asked for ours."""
    link = LocalStorage.link

    def unacknowledged(self: LocalStorage, draft: str, target: str) -> None:
        link(self, draft, target)
        if target.endswith("/snapshot-2"):
            commit_as_the_stream(place.table, 1, [100])
            raise OSError(errno.EIO, "injected")

    monkeypatch.setattr(LocalStorage, "link", unacknowledged)
    async with place.job() as job, running(place.settings()):
        await job.register()
        for number, there in ((1, [1]), (2, [1, 2, 100]), (3, [1, 2, 3, 100])):
            await job.run_batch([number])
            await job.committed(there)
        assert await stalls(job) == []


async def test_a_lower_id_is_no_proof_for_a_repair(place: Place) -> None:
    """The decision has expired, and the foreign commit that can still be read lies below it by its id."""
    async with place.job() as job, running(place.settings()):
        await job.register()
        for number in (1, 2):
            await job.run_batch([number])
            await job.committed(range(1, number + 1))
    commit_as_the_stream(place.table, 0, [100])
    expire(place.table, keep=1)
    status, found = await verified(place)
    assert (status, found["counts"]["unknown"]) == (1, 2)
    assert [each["decision"] for each in found["foreign"]] == [0]
    left = await output(place, *REPAIR)
    assert "left alone: decision 1" in left
    assert "the history that could show it has expired" in left
    assert "nothing is missing" in left
    assert read_ids(place.table) == [1, 2, 100]


async def test_a_lower_id_is_no_proof_for_the_repair_of_a_decision_without_outcome(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator ended before it learned that its commit is in the table."""
    publish, ask = PaimonCommitter.publish, PaimonCommitter.ask

    def unacknowledged(self: PaimonCommitter, request: CommitRequest) -> Publication:
        made = publish(self, request)
        return OutcomeUnknown("injected") if request.decision == 2 else made

    def unanswered(self: PaimonCommitter, decision: int, *how: Any) -> Answer:
        if decision == 2 and read_ids(place.table) == [1, 2]:
            raise LakeUnavailable("injected")
        return ask(self, decision, *how)

    monkeypatch.setattr(PaimonCommitter, "publish", unacknowledged)
    monkeypatch.setattr(PaimonCommitter, "ask", unanswered)
    async with place.job() as job, running(place.settings()):
        await job.register()
        for number in (1, 2):
            await job.run_batch([number])
            await job.committed(range(1, number + 1))
    monkeypatch.undo()
    commit_as_the_stream(place.table, 1, [100])
    expire(place.table, keep=1)
    _, found = await verified(place)
    assert (found["counts"]["other content"], found["counts"]["unresolved"]) == (1, 1)
    for more, why in (
        ((), "decision 1 is in the table with other content"),
        (("--from", "checkpoint:r1/1"), "nothing proves that decision 2 is absent in the table"),
    ):
        refused = await invoke_here(place, *REPAIR, *more)
        assert (refused.exit_code, why in refused.stderr) == (2, True), refused.stderr
        assert read_ids(place.table) == [1, 2, 100]
