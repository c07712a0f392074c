"""The Java libraries of the table formats as processes that commit on request (tools/bench/java)."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sluicegate.cli.local.jars import Java, fetched_jars, find_java

_SOURCES: Final = Path(__file__).with_name("java")
_PROTOCOL: Final = "Commits.java"
_OPTIONS: Final = ("-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")


@dataclass(frozen=True, slots=True)
class Library:
    """One library and its program."""

    title: str
    version: str
    program: str
    """Source file with the main class of the same name."""

    @property
    def listed(self) -> Path:
        """The list of its jars."""
        return _SOURCES / f"{self.title.lower()}.jars"

    def jars(self) -> list[Path]:
        """Return the class path. The first call of each user fetches 70 to 100 MB."""
        return fetched_jars(f"{self.title} {self.version}", self.listed)


LIBRARIES: Final[Mapping[str, Library]] = {
    "paimon": Library(title="Paimon", version="1.4.2", program="Paimon.java"),
    "iceberg": Library(title="Iceberg", version="1.11.0", program="Iceberg.java"),
    # The kernel comes with Hadoop and with a backend of SLF4J.
    "delta": Library(title="Delta", version="4.4.0", program="Delta.java"),
}
"""By format."""

CONNECT: Final = Library(title="Kafka-Connect", version="1.11.0", program="Iceberg.java")
"""Iceberg's sink for Kafka Connect, with a worker that is no newer than the broker."""


def compiled(library: Library, java: Java, classes: Path) -> str:
    """Compile the library's program; return the class path. Raises FetchError or CalledProcessError."""
    class_path = ":".join(str(jar) for jar in library.jars())
    sources = [str(_SOURCES / name) for name in (_PROTOCOL, library.program)]
    compiler = [str(java.executable), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    subprocess.run([*compiler, "-d", str(classes), "-cp", class_path, *sources], check=True)
    return f"{class_path}:{classes}"


class Jvm:
    """A process of one library, which commits to tables of one folder."""

    def __init__(self, library: Library, folder: Path) -> None:
        """Compile the program and start it. Raises FetchError, JavaError or CalledProcessError."""
        java = find_java()
        class_path = compiled(library, java, folder / "classes")
        self._log = folder / "jvm.log"
        name = library.program.removesuffix(".java")
        started = [str(java.executable), *_OPTIONS, "-cp", class_path, name, str(folder)]
        with self._log.open("ab") as log:
            # It ends with its input, so it cannot outlive this process.
            self._process = subprocess.Popen(
                started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def create(self, name: str) -> str:
        """Make a table; return its location."""
        return self._ask("create", name)

    def use(self, name: str) -> None:
        """Name the table of the next commits."""
        self._ask("use", name)

    def prepare(self, files: int) -> None:
        """Describe new files for the next commit."""
        self._ask("prepare", str(files))

    def commit(self) -> float:
        """Commit what was prepared; return milliseconds, measured in the process."""
        return int(self._ask("commit")) / 1e6

    def count(self, name: str) -> int:
        """Return the number of files that a reader finds in a table."""
        return int(self._ask("count", name))

    def _ask(self, *words: str) -> str:
        asked, answers = self._process.stdin, self._process.stdout
        if asked is None or answers is None:
            raise RuntimeError("the process has no pipes")
        asked.write(f"{' '.join(words)}\n")
        asked.flush()
        line = answers.readline()
        if not line:
            raise RuntimeError(f"the process has ended: {self._log.read_text()[-3000:]}")
        return line.strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The end of its input ends the process.
        with self._process:
            pass
