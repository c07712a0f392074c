"""Rows of tables with keys as Paimon's library in Java reads them, before and after its full compaction."""

import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sluicegate.cli.local.jars import Java

PROGRAM: Final = Path(__file__).with_name("JudgeKeys.java")


def judged(
    java: tuple[Java, str], folder: Path, tables: Sequence[Path]
) -> dict[tuple[int, str], dict[str, str]]:
    """Return the rows of each table, before and after a compaction. Each row is in the bucket of its key.

    `java`: the program, and the class path of the library. `folder` is for files of the compaction.
    """
    found, class_path = java
    quiet = ("-Xmx1g", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
    command = [str(found.executable), *quiet, "-cp", class_path, str(PROGRAM), str(folder), *map(str, tables)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows: dict[tuple[int, str], dict[str, str]] = defaultdict(dict)
    for line in done.stdout.splitlines():
        if line.startswith("row\t"):
            _, number, when, there, key, value = line.split("\t")
            assert there == "true", f"the row {key} is in another bucket than Java computes"
            assert key not in rows[int(number), when], f"the key {key} is there twice"
            rows[int(number), when][key] = value
    return rows
