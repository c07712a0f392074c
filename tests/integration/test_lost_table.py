"""The metadata of a table is lost: `docs/moving.md` word by word, for each format."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults import tables
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.letters import conditions
from tests.integration.orders import invoke_here, sluicegate
from tests.integration.test_adopt_older_log import commit, go_on, told
from tests.integration.test_replaced_tables import ids_of
from tests.integration.waiting import until
from tests.lakes.test_lost_metadata import lose_metadata

pytestmark = pytest.mark.kafka
PAGE = Path(__file__).parents[2] / "docs" / "moving.md"
_SECTION = re.compile(r"^## The table is lost\n(.*?)^## ", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def commands() -> Iterator[list[str]]:
    """Yield the commands of the section, in order, without the program's name."""
    section = _SECTION.search(PAGE.read_text(encoding="utf-8"))
    assert section is not None
    for block in _BLOCK.findall(section[1]):
        name, *words = block.split()
        assert name == "sluicegate"
        yield words


@pytest.mark.parametrize(
    ("lake", "catalog"),
    [
        *((lake, False) for lake in tables.FORMATS),
        pytest.param("iceberg", True, id="iceberg-whose-catalog-is-there"),
    ],
)
async def test_a_stream_continues_on_a_table_that_is_built_again(
    kafka_bootstrap: str, unique: str, tmp_path: Path, impatient: None, lake: str, catalog: bool
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    async with place.job() as job:
        await commit(place, job, range(1, 4))
        async with running(place.settings()) as service:
            event = await job.written(job.write_files([4]))
            lose_metadata(Path(place.table), catalog=not catalog)
            # It may be decided, and is then built as well.
            await job.complete(event, source_offsets=json.dumps({"next": 5}))
            retried = await until(lambda: [each for each in conditions(service) if each["kind"] == "retry"])
            assert "is lost for good, restart the coordinators: the stream then stalls" in str(retried)
        assert "sluicegate replay rebuild --stream flights --into TABLE" in await told(place, "table-unfit")
        again = tables.create_table(place.root, "again", lake)
        options = dict(tables.kind_of(again).options(again))
        named = [each for name, value in options.items() for each in ("--option", f"{name}={value}")]
        rebuild, adopt = commands()
        line = [str(again) if "/lake/" in each else each for each in rebuild]
        built = await invoke_here(place, *line, *named)
        assert built.exit_code == 0, built.output
        there = replace(place, table=str(again), lake_options=options)
        adopted = await invoke_here(there, *adopt, "--json")
        assert adopted.exit_code == 0, adopted.output
        job.location, job.lake_options = there.table, options
        await go_on(there, job, json.loads(adopted.stdout), 5)
    assert ids_of(there) == [1, 2, 3, 4, 5]


async def test_a_table_of_which_nothing_is_left_is_read_again_from_the_sources(place: Place) -> None:
    """The same steps without a build, into an empty table."""
    async with place.job() as job:
        await commit(place, job, range(1, 3))
        empty = tables.create_table(place.root, "empty")
        there = replace(place, table=str(empty))
        _, adopt = commands()
        refused = await invoke_here(there, *adopt)
        assert refused.exit_code == 2
        (given_up,) = re.findall(r"--give-up \d+", refused.stderr)
        text = await sluicegate(there, *adopt, *given_up.split())
        assert "continues at its beginning" in text
        job.location = there.table
        async with running(there.settings()):
            assert (await job.begin("again")).accepted
            for number in (1, 2, 3):
                await job.run_batch([number])
                await job.committed(range(1, number + 1))
