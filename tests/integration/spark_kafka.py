"""Spark's connector for Kafka, fetched once for each user, and the example that uses it as a process."""

import os
import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

from sluicegate.cli.local.jars import fetched_jars
from tests.integration.conftest import Place

_PAGE: Final = Path(__file__).parents[2] / "docs" / "spark.md"
_ROW: Final = re.compile(
    r"^\| (\S+) \| `--packages (org.apache.spark:spark-sql-kafka-0-10_\S+)` \|", re.MULTILINE
)
COORDINATES: Final = dict(_ROW.findall(_PAGE.read_text(encoding="utf-8")))
"""The connector by the line of Spark, as the page names it."""
VERSION: Final = COORDINATES[".".join(version("pyspark").split(".")[:2])].rpartition(":")[2]
"""A release of the connector that the Spark in use takes: it calls what is internal to Spark."""
_EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "regions.py"
_LISTED: Final = Path(__file__).with_name(f"spark-kafka-{VERSION}.jars")


class Example:
    """The example `regions.py` as a process. Use it as a context: its end is a kill."""

    def __init__(self, place: Place, count: int, log: Path, **environment: str) -> None:
        jars = fetched_jars("Kafka for Spark", _LISTED)
        arguments = [place.bootstrap, str(place.root), "departures-" + place.prefix, str(count)]
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(_EXAMPLE), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "PYSPARK_SUBMIT_ARGS": f"--jars {','.join(map(str, jars))} pyspark-shell",
                    "TOPIC_PREFIX": place.prefix,
                    **environment,
                },
            )

    def __enter__(self) -> "Example":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def text(self) -> str:
        """Return what the process has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")
