"""Paimon's own compaction, by its Java library, beside a coordinator."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sluicegate.failpoints.names import Failpoint
from tests.faults.compactor import KINDS, LibraryMissing, compactor, verify
from tests.faults.feeds import Feed
from tests.faults.rolling import conclude, exact
from tests.faults.scenes import Maker, reached
from tests.lakes.paimon.independent_reader import TableDamaged, read_table

pytestmark = [pytest.mark.kafka, pytest.mark.redis]


async def test_a_compaction_that_is_first_delays_a_commit_and_no_more(make: Maker, tmp_path: Path) -> None:
    """The coordinator's publication finds the number taken, tries again, and is killed behind the link."""
    where = await make(table_options=KINDS["unaware"], compacted=True)
    table, go = where.tables["flights"], tmp_path / "go"
    async with AsyncExitStack() as stack:
        try:
            other = await stack.enter_async_context(compactor(tmp_path))
        except LibraryMissing as missing:
            pytest.skip(str(missing))
        feed = await stack.enter_async_context(Feed(where))
        life = where.start()
        await feed.batch()
        await exact(where, [feed], life)
        life.kill()
        life = where.start(f"lake.put.before=hang:{go}@1;lake.put.after=kill@1")
        await feed.batch()
        await reached(where, Failpoint.LAKE_PUT_BEFORE, 1, life)
        assert (await other.compact(table)).files == 2
        go.touch()
        await life.killed()
        assert " lake.discard.before " in where.noted()
        found = await conclude(where, [feed])
        assert (found.commits, found.others) == (3, 1)
        assert (await other.compact(table)).files == 3
        verify(where)
        assert (await exact(where, [feed])).others == 2
    with pytest.raises(TableDamaged, match="removes files"):
        read_table(table)
