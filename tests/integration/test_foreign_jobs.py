"""A foreign Paimon job that was given the stream's own commit user."""

import errno
from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory
from pypaimon.write.table_commit import StreamTableCommit

from sluicegate.lakes.paimon.storage import LocalStorage
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import SCHEMA, expire, read_ids
from tests.integration.letters import stalls
from tests.integration.orders import invoke_here
from tests.integration.test_replay import REPLAY, USER, verified

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
    assert (status, found["counts"]["unknown"]) == (0, 2)
    refused = await invoke_here(place, *REPLAY, "--commit-missing")
    assert refused.exit_code == 2
    assert "it cannot be proven whether decision 1 is in the table" in refused.stderr
    assert read_ids(place.table) == [1, 2, 100]
