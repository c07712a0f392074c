"""Commits of an Iceberg table that its owner rolls back and picks again are not doubled."""

from pathlib import Path

import pytest

from tests.faults import iceberg_tables
from tests.faults.tables import FORMATS
from tests.iceberg_java.java import IcebergJava, sql_catalog
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.test_upkeep import STREAM, commit, printed, three_commits

pytestmark = pytest.mark.kafka


@pytest.fixture
async def place(kafka_bootstrap: str, unique: str, tmp_path: Path) -> Place:
    """Topics, and an Iceberg table."""
    return await place_of("iceberg", kafka_bootstrap, unique, tmp_path)


async def test_commits_that_were_picked_again_are_not_repeated(
    place: Place, iceberg_java: IcebergJava
) -> None:
    root = Path(place.table)
    catalog = sql_catalog(root.parents[1] / "catalog.db", f"file://{root.parents[1]}")

    def ids() -> list[int]:
        return sorted(row["id"] for row in FORMATS[place.lake].rows(root))

    async with place.job() as job:
        await three_commits(place, job)
        made = iceberg_tables.snapshot_ids(root)
        iceberg_java.change("rollback", catalog, "db.flights", snapshot=made[1])
        iceberg_tables.append(root, [100])
        iceberg_java.change("cherrypick", catalog, "db.flights", snapshot=made[2])
        found = await printed(place, "replay", "verify", *STREAM)
        assert (found["counts"]["there"], found["different"]) == (3, False)
        done = await printed(place, "replay", "repair", *STREAM)
        assert (done["committed"], done["head_stated"]) == ([], True)
        assert ids() == [1, 2, 3, 100]
        async with running(place.settings()):
            await commit(job, 4)
    assert ids() == [1, 2, 3, 4, 100]
