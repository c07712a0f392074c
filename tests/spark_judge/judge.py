"""A Spark with the runtimes of lake formats, which reads our commits and writes between them.

It is another release than that of the jobs, since the runtimes exist for some releases only. So it has an
environment of its own, which is made once for each user: about 520 MB.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from sluicegate.cli.local.errors import FetchError
from sluicegate.cli.local.jars import cached_directory, fetched_jars

SPARK: Final = "4.1.4"
SKIPPED: Final = "SLUICEGATE_TEST_SPARK_JUDGE"
"""Variable of the environment that leaves these tests out with the value `no`."""
REASON: Final = f"left out by {SKIPPED}=no: no Spark with the runtimes of lake formats reads these tables"

_WORKER: Final = Path(__file__).with_name("worker.py")


class SparkError(Exception):
    """Spark's answer to a statement that failed."""


class SparkJudge:
    """One session in a child process. Use it as a context."""

    def __init__(self, folder: Path) -> None:
        environment, jars = spark_with_runtimes()
        with (folder / "spark.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(_WORKER), jars, str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env=environment,
            )
        self._log = folder / "spark.log"
        self.version: str = self._answer()[0][0]

    def sql(self, statement: str) -> list[list[Any]]:
        """Return the rows of a statement. Dates, times and decimals come as texts. Raises SparkError."""
        return self._ask(statement)

    def begin(self, settings: Mapping[str, str]) -> None:
        """Begin another session of the same Spark with these settings, such as catalogs."""
        self._ask(dict(settings))

    def _ask(self, request: str | dict[str, str]) -> list[list[Any]]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> list[list[Any]]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SparkError(f"Spark has ended: {self._log.read_text(errors='replace')[-2000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise SparkError(answer["error"])
        rows: list[list[Any]] = answer["rows"]
        return rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Spark ends at the end of its input.
        self._process.communicate()


def spark_with_runtimes() -> tuple[dict[str, str], str]:
    """Return the environment of a process with this Spark, and its `spark.jars`. Raises FetchError."""
    home = cached_directory(f"pyspark-{SPARK}", _install)
    environment = {**os.environ, "PYTHONPATH": str(home), "PYTHONNOUSERSITE": "1"}
    environment.pop("SPARK_HOME", None)
    return environment, ",".join(map(str, _runtimes()))


def _runtimes() -> list[Path]:
    """Return the jars of the runtimes. Raises FetchError."""
    delta = fetched_jars("Delta for Spark", _WORKER.with_name("delta.jars"))
    iceberg = fetched_jars("Iceberg for Spark", _WORKER.with_name("iceberg.jars"))
    return [*delta, *iceberg]


def _install(folder: Path) -> None:
    """Install PySpark into a folder. Raises FetchError."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    made = subprocess.run(
        [*command, "--target", str(folder), f"pyspark=={SPARK}"], capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise FetchError(
            f"could not install PySpark {SPARK} ({made.stderr.strip()[-300:]}); check the network, or set "
            f"{SKIPPED}=no to leave its tests out"
        )
