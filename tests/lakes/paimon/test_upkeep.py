"""The recipe of maintenance, by Paimon's Java library: our commits continue after it, and nothing is lost."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from sluicegate.cli.local.errors import FetchError
from sluicegate.cli.local.jars import Java, fetched_jars, find_java
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.recipes import recipe

ROOT: Final = Path(__file__).parents[3]
DAY: Final = 86_400


@pytest.fixture(scope="module")
def java() -> tuple[Java, str]:
    """Give Java, and the class path of the library."""
    found = find_java()
    try:
        jars = fetched_jars("Paimon", ROOT / "tools/bench/java/paimon.jars")
    except FetchError as missing:
        pytest.skip(str(missing))
    return found, ":".join(map(str, jars))


def maintain(java: tuple[Java, str], folder: Path, table: Path) -> None:
    """Run the program of the page."""
    program = folder / "Maintain.java"
    program.write_text(recipe("paimon", "java"), encoding="utf-8")
    found, class_path = java
    quiet = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
    command = [str(found.executable), *quiet, "-cp", class_path, str(program), str(table)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def age(path: Path, days: int) -> None:
    past = time.time() - days * DAY
    os.utime(path, (past, past))


def older(root: Path, days: int) -> None:
    """Let all snapshots have been made some days earlier."""
    for snapshot in (root / "snapshot").glob("snapshot-*"):
        fields = json.loads(snapshot.read_bytes())
        fields["timeMillis"] -= days * DAY * 1000
        snapshot.write_text(json.dumps(fields), encoding="utf-8")


@pytest.mark.slow
def test_the_recipe_cleans_up_and_spares_pending_files(java: tuple[Java, str], tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path / "lake")
    stream, root = Stream(lake), Path(lake.location)
    for decision in range(1, 13):
        stream.commit(decision, [decision])
    older(root, 6)
    stream = Stream(lake)
    waiting, orphan = lake.event([13]), lake.event([900])
    (kept,), (lost,) = ([root / file.path for file in event.files] for event in (waiting, orphan))
    age(kept, 29)
    age(lost, 31)
    cleaner = lake.maintenance().cleaner()
    assert "give it the argument older_than" in cleaner.remedy, "the program does"
    maintain(java, tmp_path, root)
    assert (kept.exists(), lost.exists()) == (True, False)
    newest = stream.committer.inspect().head
    assert newest is not None
    assert newest.id == 13, "the compaction is one more snapshot"
    assert len(list((root / "snapshot").glob("snapshot-*"))) == 10
    stream.add(13, waiting)
    assert lake.ids() == list(range(1, 14))
