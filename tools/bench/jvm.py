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
_HADOOP: Final = "3.4.1"
_SLF4J: Final = "2.0.17"


@dataclass(frozen=True, slots=True)
class Library:
    """One library: its program, and the packages that the program needs."""

    title: str
    version: str
    program: str
    """Source file with the main class of the same name."""
    main: str
    """Name of a jar that must have been fetched."""
    packages: tuple[tuple[str, str, str], ...]
    """Organisation, name and version; with all that they need."""
    alone: tuple[tuple[str, str, str], ...] = ()
    """The same without what they need."""

    def jars(self, java: Java) -> list[Path]:
        """Return the class path. The first call of each user fetches 70 to 100 MB."""
        cached = f"bench-{self.title.lower()}"
        return fetched_jars(java, self.title, cached, self.version, self._module(), self.main)

    def _module(self) -> str:
        kinds = (self.packages, 'conf="default"'), (self.alone, 'transitive="false"')
        lines = [
            f'    <dependency org="{group}" name="{name}" rev="{version}" {how}/>'
            for packages, how in kinds
            for group, name, version in packages
        ]
        return "\n".join(
            (
                '<ivy-module version="2.0">',
                f'  <info organisation="sluicegate" module="bench-{self.title.lower()}"/>',
                "  <dependencies>",
                *lines,
                "  </dependencies>",
                "</ivy-module>",
                "",
            )
        )


_LOG: Final = ("org.slf4j", "slf4j-simple", _SLF4J)

LIBRARIES: Final[Mapping[str, Library]] = {
    "paimon": Library(
        title="Paimon",
        version="1.4.2",
        program="Paimon.java",
        main="paimon-bundle-1.4.2.jar",
        packages=(_LOG,),
        alone=(
            ("org.apache.paimon", "paimon-bundle", "1.4.2"),
            ("org.apache.hadoop", "hadoop-client-api", _HADOOP),
            ("org.apache.hadoop", "hadoop-client-runtime", _HADOOP),
        ),
    ),
    "iceberg": Library(
        title="Iceberg",
        version="1.11.0",
        program="Iceberg.java",
        main="iceberg-core-1.11.0.jar",
        packages=(
            ("org.apache.iceberg", "iceberg-core", "1.11.0"),
            ("org.xerial", "sqlite-jdbc", "3.46.1.3"),
            _LOG,
        ),
        alone=(
            ("org.apache.hadoop", "hadoop-client-api", _HADOOP),
            ("org.apache.hadoop", "hadoop-client-runtime", _HADOOP),
        ),
    ),
    # The kernel comes with Hadoop and with a backend of SLF4J.
    "delta": Library(
        title="Delta",
        version="4.4.0",
        program="Delta.java",
        main="delta-kernel-defaults-4.4.0.jar",
        packages=(
            ("io.delta", "delta-kernel-api", "4.4.0"),
            ("io.delta", "delta-kernel-defaults", "4.4.0"),
        ),
    ),
}
"""By format."""


class Jvm:
    """A process of one library, which commits to tables of one folder."""

    def __init__(self, library: Library, folder: Path) -> None:
        """Compile the program and start it. Raises FetchError, JavaError or CalledProcessError."""
        java = find_java()
        classes = folder / "classes"
        class_path = ":".join(str(jar) for jar in library.jars(java))
        sources = [str(_SOURCES / name) for name in (_PROTOCOL, library.program)]
        compiler = [str(java.executable), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        subprocess.run([*compiler, "-d", str(classes), "-cp", class_path, *sources], check=True)
        self._log = folder / "jvm.log"
        name = library.program.removesuffix(".java")
        started = [str(java.executable), *_OPTIONS, "-cp", f"{class_path}:{classes}", name, str(folder)]
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
