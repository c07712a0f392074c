"""Toolchains of other languages. Where one is missing, a test is skipped with what is missing.

With SLUICEGATE_TEST_CONSUMERS=required, such a test fails instead.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, NoReturn

import pytest

from sluicegate.cli.local.errors import FetchError, JavaError
from sluicegate.cli.local.jars import fetched_jars, find_java
from tests.consumers.environments import REQUIRED

GO_GENERATOR: Final = "github.com/atombender/go-jsonschema@v0.24.1"
_POJO: Final = Path(__file__).with_name("jsonschema2pojo.jars")


def lacking(what: str) -> NoReturn:
    """Skip the test, or fail it if it is required."""
    text = f"{what}, so this is NOT tested"
    if REQUIRED:
        pytest.fail(text)
    pytest.skip(text)


def go(*arguments: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command of Go, and return its output. Modules come from the proxy that Go is set up with."""
    program = shutil.which("go")
    if program is None:
        lacking("Go is not on the PATH (Debian: golang-go)")
    done = subprocess.run(
        [program, *arguments], cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True
    )
    if done.returncode and any(word in done.stderr for word in ("dial tcp", "proxyconnect", "TLS handshake")):
        lacking(f"the modules of Go cannot be fetched here: {done.stderr[-500:]}")
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def java_class_path() -> tuple[Path, str]:
    """Return the folder of Java's programs, and the class path of the generator and of what it makes."""
    try:
        java = find_java()
        jars = fetched_jars("jsonschema2pojo", _POJO)
    except JavaError as error:
        lacking(f"Java is missing: {error}")
    except FetchError as error:
        lacking(f"the generator for Java cannot be fetched: {error}")
    found = shutil.which(str(java.executable))
    assert found is not None
    folder = Path(found).resolve().parent
    if not (folder / "javac").exists():
        lacking("Java has no compiler (Debian: openjdk-17-jdk-headless)")
    return folder, os.pathsep.join(map(str, jars))
