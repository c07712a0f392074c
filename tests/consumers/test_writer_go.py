"""The client in Go: it writes by the contract, and loses and doubles nothing when it is killed."""

import operator
import random
import subprocess
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from sluicegate import documents
from tests.consumers.toolchains import go
from tests.faults.iceberg_tables import catalog_of
from tests.faults.tables import kind_of, rows_told
from tests.integration.conftest import place_of
from tests.integration.coordinator import running
from tests.integration.waiting import exit_status, tail, until

pytestmark = [pytest.mark.long, pytest.mark.matrix]
CLIENT: Final = Path(__file__).parents[2] / "examples" / "writer_go"
ROWS: Final = 12_000
MOST: Final = 40
"""Rows of a checkpoint."""
KILLS: Final = 5


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program."""
    program = tmp_path_factory.mktemp("go") / "writer"
    go("build", "-o", program, ".", cwd=CLIENT)
    return program


def test_the_client_is_formatted_and_small() -> None:
    go("vet", "./...", cwd=CLIENT)
    sources = [each for each in CLIENT.glob("*.go") if not each.stem.endswith("_test")]
    assert sum(len(each.read_text(encoding="utf-8").splitlines()) for each in sources) <= 620
    done = subprocess.run(["gofmt", "-l", "."], cwd=CLIENT, capture_output=True, text=True, check=True)
    assert not done.stdout


def test_the_client_plays_the_conversation(tmp_path: Path) -> None:
    documents.write(tmp_path)
    found = go(
        *("test", "-count=1", "-v", "./..."),
        cwd=CLIENT,
        SLUICEGATE_CONVERSATION=str(tmp_path / "conversation.json"),
    )
    assert "--- PASS: TestConversation" in found


def start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Run the program, with its output at the end of a file."""
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)


@pytest.mark.kafka
@pytest.mark.parametrize("lake", ["iceberg", "delta"])
async def test_a_client_that_is_killed_at_random_writes_each_row_once(
    lake: str, client: Path, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    table, log = Path(place.table), tmp_path / "client.log"
    command = [
        *(str(client), "-bootstrap", kafka_bootstrap, "-prefix", place.prefix, "-format", lake),
        *("-location", place.table, "-rows", str(ROWS), "-most", str(MOST), "-ahead", "3"),
        *(("-spec-id", "1") if lake == "iceberg" else ()),
    ]

    def begun() -> int:
        return log.read_text(encoding="utf-8").count("begins at row")

    choose, committed = random.Random(lake), partial(rows_told, table)
    # Each life is killed after a commit of its own, at a random number of rows after the one before.
    async with running(place.settings("flights")):
        for life in range(KILLS):
            process = start(command, log)
            try:
                # From then on, nothing of the life before is committed any more.
                await until(begun, partial(operator.lt, life), by=process, log=log)
                beyond = partial(operator.le, committed() + choose.randrange(1, ROWS // (4 * KILLS)))
                await until(committed, beyond, by=process, log=log)
            finally:
                process.kill()
                process.wait()
        assert committed() < ROWS
        last = start(command, log)
        try:
            await until(lambda: last.poll() is not None, log=log)
        finally:
            last.kill()
        assert exit_status(last) == 0, tail(log)
    tally = kind_of(table).tally(table, range(ROWS), "sluicegate-flights")
    assert tally.exact, tally
    # Each life began at the position that was committed then.
    assert begun() == KILLS + 1


@pytest.mark.kafka
async def test_a_client_writes_a_further_table_of_its_stream(
    client: Path, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place = await place_of("iceberg", kafka_bootstrap, unique, tmp_path)
    log = tmp_path / "client.log"
    with closing(catalog_of(Path(place.table))) as catalog:
        schema = catalog.load_table("db.flights").schema()
        delays = catalog.create_table("db.delays", schema)
        with delays.update_spec() as update:
            update.add_identity("origin")
        folder = delays.location().removeprefix("file://")
        command = [
            *(str(client), "-bootstrap", kafka_bootstrap, "-prefix", place.prefix, "-anchor", place.table),
            *("-table", "delays", "-location", folder, "-spec-id", "1", "-rows", "100"),
        ]
        async with running(place.settings(options={"tables": {"delays": "db.delays"}})):
            process = start(command, log)
            try:
                await until(lambda: process.poll() is not None, log=log)
            finally:
                process.kill()
            assert exit_status(process) == 0, tail(log)
        found: pa.Table = catalog.load_table("db.delays").scan().to_arrow()
        assert sorted(found["id"].to_pylist()) == list(range(100))
        assert catalog.load_table("db.flights").scan().to_arrow().num_rows == 0
