"""Kafka's jars, fetched once with the copy of Ivy that PySpark contains."""

import hashlib
import importlib.util
import logging
import os
import shutil
from pathlib import Path
from typing import Final

from sluicegate.embedded.cache import cached_directory
from sluicegate.embedded.errors import FetchError
from sluicegate.embedded.java import Java
from sluicegate.embedded.process import ChildProcess
from sluicegate.embedded.settings import KAFKA_VERSION, SCALA_VERSION, SLF4J_VERSION

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
            "the embedded Kafka needs the Ivy jar of an installed PySpark; "
            "run pip install 'sluicegate[embedded]'"
        )
    return found[-1]
