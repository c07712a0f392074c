"""Paimon's own compaction, by its Java library, in a process of its own.

python -m tests.faults.compactor

Reads the folders of tables from its standard input, one a line, and compacts each once; what came of it is
a line of JSON on its standard output. The JVM is the one that PySpark brings.
"""

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import launch_gateway

from sluicegate.cli.local.errors import FetchError
from sluicegate.cli.local.jars import fetched_jars
from sluicegate.cli.local.process import free_port
from tests.faults.lives import COMMAND, Deployment
from tests.faults.tables import Inexact
from tests.integration.waiting import finished

ROOT: Final = Path(__file__).parents[2]
USER: Final = "compaction"
_GIVEN_UP: Final = ("conflict", "Commit failed")
EAGER: Final = {"compaction.min.file-num": "2"}
"""Two small files are enough for the library to replace them."""
KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "unaware": EAGER,
    "fixed": {**EAGER, "bucket": "1", "bucket-key": "id"},
}
"""Options of the tables that are compacted."""


class LibraryMissing(Exception):
    """The library is not on this machine and cannot be fetched."""


@dataclass(frozen=True)
class Compaction:
    """What came of one."""

    files: int
    """How many it replaced; 0: there was nothing to do."""
    refused: str = ""
    """Why the library gave it up, if it did."""


class Compactor:
    """The process, which compacts on request."""

    def __init__(self, process: asyncio.subprocess.Process, log_file: Path) -> None:
        self._process = process
        self._log_file = log_file

    async def compact(self, table: Path) -> Compaction:
        """Compact a table once. Raises RuntimeError if the process fails."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the compactor was started without pipes")
        self._process.stdin.write(f"{table}\n".encode())
        # The first answer takes the start of the JVM.
        line = await finished(self._process.stdout.readline(), "a compaction")
        if not line:
            raise RuntimeError(f"the compactor failed; the end of its log:\n{self.tail()}")
        return Compaction(**json.loads(line))

    def tail(self) -> str:
        """The end of its log."""
        return "\n".join(self._log_file.read_text(errors="replace").splitlines()[-30:])


@asynccontextmanager
async def compactor(folder: Path) -> AsyncIterator[Compactor]:
    """Start the process; it ends with the block. Raises LibraryMissing, RuntimeError."""
    try:
        _library()
    except FetchError as error:
        raise LibraryMissing(str(error)) from error
    log_file = folder / "compactor.log"
    with log_file.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.faults.compactor",
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    try:
        made = Compactor(process, log_file)
        # A folder without a table: answered as soon as the JVM runs.
        await made.compact(Path(os.devnull))
        yield made
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            await finished(process.wait(), "the compactor")
        except AssertionError:
            process.kill()
            await process.wait()
            raise


def verify(where: Deployment) -> None:
    """Ask the command whether the table differs from the log. Raises Inexact if so."""
    config = where.write_settings(0, free_port())
    command = [*COMMAND, "replay", "verify", "--config", str(config), "--stream", "flights"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=where.folder, check=False)
    if done.returncode:
        raise Inexact(f"replay verify ended with {done.returncode}: {done.stdout}{done.stderr}")


def _library() -> Path:
    """Return the jar of the library. Raises FetchError."""
    jars = fetched_jars("Paimon", ROOT / "tools/bench/java/paimon.jars")
    return next(jar for jar in jars if jar.name.startswith("paimon-bundle-"))


def _gateway() -> Any:
    wanted = ["--jars", str(_library()), "--driver-memory", "512m"]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*wanted, "pyspark-shell"])
    return launch_gateway()


def _compact(jvm: Any, root: str) -> Compaction:
    paimon = jvm.org.apache.paimon
    table = paimon.table.FileStoreTableFactory.create(
        paimon.fs.local.LocalFileIO(), paimon.fs.Path(Path(root).as_uri())
    )
    if table.snapshotManager().latestSnapshotId() is None:
        return Compaction(0)
    # Tables with keys leave compaction to this job.
    table = table.copy(jvm.java.util.Map.of("write-only", "false"))
    writing = table.newWrite(USER).withIOManager(paimon.disk.IOManager.create(f"{root}/../spill"))
    if table.bucketMode().toString() == "BUCKET_UNAWARE":
        tasks = list(paimon.append.AppendCompactCoordinator(table, False, None).run())
        made = [task.doCompact(table, table.store().newWrite(USER)) for task in tasks]
    else:
        for each in table.newSnapshotReader().bucketEntries():
            writing.compact(each.partition(), each.bucket(), True)
        made = list(writing.prepareCommit())
    writing.close()
    files = sum(each.compactIncrement().compactBefore().size() for each in made)
    if not files:
        return Compaction(0)
    committing = table.newCommit(USER)
    try:
        committing.commit(made)
    finally:
        committing.close()
    return Compaction(files)


def _serve() -> None:
    # What the JVM prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    jvm = _gateway().jvm
    for line in sys.stdin:
        root = line.strip()
        try:
            done = Compaction(0) if root == os.devnull else _compact(jvm, root)
        except Py4JJavaError as error:
            said = str(error.java_exception)
            print(error, file=sys.stderr, flush=True)
            if not any(mark in said for mark in _GIVEN_UP):
                raise
            done = Compaction(0, said[:300])
        answers.write(json.dumps(done.__dict__) + "\n")


if __name__ == "__main__":
    _serve()
