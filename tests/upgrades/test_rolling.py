"""A rolling upgrade: coordinators and writers of two releases share a stream, and its table is exact."""

import io
import shutil
import subprocess
import tarfile
from functools import partial
from operator import le
from pathlib import Path
from typing import Final

import pytest

from tests.faults.feeds import Feed
from tests.faults.lives import Life
from tests.faults.pythons import STEP, PlainJob, Program
from tests.faults.scenes import Maker
from tests.faults.sparks import Tickets
from tests.faults.tables import FORMATS, rows_told, tally
from tests.integration.waiting import until, watched
from tests.packaging.environments import LOCK, UV, Environment, new_environment, run
from tests.repository.test_layout import ROOT

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

FORMER: Final = "bba7a53330c613ebd7c9ecefdad9cc3036eb4a43"
"""The first commit whose state records have today's version; a tag as soon as there is a release."""
REGIONS: Final = ("r1", "r2")
ROUNDS: Final = 3
FIRST: Final = 1_000_000


@pytest.fixture(scope="session")
def former(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Give an environment with the former release; skip if the clone has no history."""
    command = ["git", "archive", "--format=tar", FORMER]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip("NOT TESTED HERE: this clone has no history. Fetch it: git fetch --unshallow")
    folder = tmp_path_factory.mktemp("former")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as source:
        source.extractall(folder / "source", filter="data")
    environment = new_environment(folder / "environment")
    wanted = f"sluicegate[{','.join(FORMATS)}] @ {(folder / 'source').as_uri()}"
    build = ("--constraint", LOCK, "--build-constraint", LOCK)
    run(UV, "pip", "install", "--python", environment.python, *build, wanted)
    return environment


def program_of(former: Environment, folder: Path) -> list[str]:
    """Return the command of the writer of the former release."""
    script = folder / "former_writer.py"
    shutil.copy(ROOT / "tests" / "faults" / "plaindriver.py", script)
    return [str(former.python), "-I", str(script)]


@pytest.mark.parametrize("lake", list(FORMATS))
async def test_coordinators_and_writers_of_two_releases_share_a_stream(
    lake: str, make: Maker, former: Environment
) -> None:
    where = await make(lake=lake, evicts=False, state_record_interval="1s")
    commands = [[str(former.folder / "bin" / "sluicegate")], None]

    def start(release: int) -> Life:
        command = commands[release]
        return where.start() if command is None else where.start(command=command)

    job = PlainJob(where, Tickets(where), {"regions": ",".join(REGIONS), "assignment": "0"})
    writer = Program(job, program=program_of(former, where.folder))
    lives = [start(0), start(1)]
    try:
        with watched(writer):
            async with Feed(where, region="r2", regions=REGIONS, first=FIRST) as feed:
                for killed in [0, 1] * ROUNDS:
                    # The other one alone commits what comes now, from what the killed one has left behind.
                    lives[killed].kill()
                    job.ask_for(STEP)
                    await feed.batch()
                    wanted = job.target + len(feed.ids)
                    other = lives[1 - killed]
                    await until(
                        partial(rows_told, where.tables["flights"]),
                        partial(le, wanted),
                        by=other,
                        log=other.log_file,
                        what=f"{wanted} rows",
                    )
                    lives[killed] = start(killed)
                expected = [*range(job.target), *feed.ids]
                found = tally(where.tables["flights"], expected, where.user("flights"))
                assert found.exact, found
    finally:
        writer.kill()
        for life in lives:
            life.end()
