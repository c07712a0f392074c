"""Kafka's jars, the cache that has them, and the Java that runs them."""

import fcntl
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluicegate.cli.local.errors import FetchError, JavaError
from sluicegate.cli.local.process import ChildProcess
from sluicegate.installation import install_command

KAFKA_VERSION: Final = "4.2.0"
SCALA_VERSION: Final = "2.13"
SLF4J_VERSION: Final = "1.7.36"
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
    """Return the Java of JAVA_HOME, else the one on PATH.

    Raises:
        JavaError: no Java was found, it does not run, or it is older than Java 17.
    """
    executable = _locate()
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


# Kafka's jars, fetched once with the copy of Ivy that PySpark contains.

_FETCH_SECONDS: Final = 600.0
_log = logging.getLogger(__name__)

# Kafka's jars contain no SLF4J backend; slf4j-simple writes to the process's standard error.
_DEPENDENCIES: Final = f"""\
<ivy-module version="2.0">
  <info organisation="sluicegate" module="embedded-kafka"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_{SCALA_VERSION}" rev="{KAFKA_VERSION}" conf="default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="{SLF4J_VERSION}" conf="default"/>
  </dependencies>
</ivy-module>
"""


def kafka_jars(java: Java) -> list[Path]:
    """Return the jars of Kafka's class path. The first call of each user fetches them.

    SLUICEGATE_IVY_SETTINGS names an Ivy settings file, for a mirror of the package registry.

    Raises:
        FetchError: PySpark is not installed, or the registry could not be reached.
    """
    main = f"kafka_{SCALA_VERSION}-{KAFKA_VERSION}.jar"
    return fetched_jars(java, "Apache Kafka", "kafka", KAFKA_VERSION, _DEPENDENCIES, main)


def fetched_jars(java: Java, title: str, name: str, version: str, module: str, main: str) -> list[Path]:
    """Return the jars of a product, sorted by name. The first call of each user fetches them into the cache.

    `title` is the product in messages, `name` in the cache. `module` is the text of an `ivy.xml`, `main` the
    name of a jar that must be there afterwards. Raises FetchError as `kafka_jars` does.
    """
    digest = hashlib.sha256(module.encode()).hexdigest()[:8]
    full = f"{title} {version}"
    directory = cached_directory(
        f"{name}-{version}-{digest}", lambda empty: _fetch(java, full, module, main, empty)
    )
    return sorted(directory.glob("*.jar"))


def _fetch(java: Java, title: str, module: str, main: str, directory: Path) -> None:
    work = directory / "ivy"
    work.mkdir()
    (work / "ivy.xml").write_text(module, encoding="utf-8")
    command = [str(java.executable), "-cp", str(_ivy_jar()), "org.apache.ivy.Main", "-warn"]
    settings = os.environ.get("SLUICEGATE_IVY_SETTINGS")
    if settings:
        command += ["-settings", str(Path(settings).absolute())]
    command += ["-cache", str(work / "cache"), "-ivy", str(work / "ivy.xml"), "-types", "jar", "bundle"]
    command += ["-retrieve", f"{directory}/[artifact]-[revision](-[classifier]).[ext]"]
    _log.info("fetching %s (about 50 MB, once per user) into %s", title, directory.parent)
    log_file = work / "ivy.log"
    try:
        process = ChildProcess(command, log_file=log_file, cwd=work)
        try:
            status = process.wait(_FETCH_SECONDS)
        finally:
            process.kill()
    except TimeoutError as error:
        raise FetchError(_explain(title, f"no answer within {_FETCH_SECONDS:g} s")) from error
    if status != 0 or not (directory / main).exists():
        raise FetchError(_explain(title, _reason(log_file.read_text(encoding="utf-8", errors="replace"))))
    shutil.rmtree(work)


def _reason(output: str) -> str:
    """Return the line of Ivy's report that names the cause."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    # From the most specific mark to the least specific one.
    for mark in ("Server access error", "Exception", "FAILED", "not found", "rror"):
        for line in lines:
            if mark in line:
                return line
    return lines[-1] if lines else "Ivy gave no output"


def _explain(title: str, reason: str) -> str:
    return (
        f"could not fetch {title} from the package registry ({reason}); check the "
        "network or proxy, or set SLUICEGATE_IVY_SETTINGS to an Ivy settings file that names a mirror"
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    folders = spec.submodule_search_locations if spec is not None else None
    found = sorted(jar for folder in folders or () for jar in Path(folder, "jars").glob("ivy-*.jar"))
    if not found:
        raise FetchError(
            f"the embedded Kafka needs the Ivy jar of an installed PySpark; run {install_command('embedded')}"
        )
    return found[-1]
