"""Detection of a Java that can run Kafka."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluicegate.embedded.errors import JavaError
from sluicegate.embedded.settings import MINIMUM_JAVA

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
