"""Code that generators of others make of the JSON Schemas compiles, in Go and in Java."""

import re
import subprocess
from pathlib import Path

import pytest

from sluicegate import documents
from sluicegate.events.envelope import BODIES
from sluicegate.events.notifications import NOTIFICATION_BODIES
from tests.consumers.toolchains import GO_GENERATOR, go, java_class_path

pytestmark = [pytest.mark.long, pytest.mark.matrix]
MODELS = {body.__name__ for body in (*BODIES.values(), *NOTIFICATION_BODIES.values())}


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    """The schema with the models of all bodies."""
    documents.write(tmp_path / "documents")
    return tmp_path / "documents" / "messages.schema.json"


def test_the_code_for_go_compiles(schema: Path, tmp_path: Path) -> None:
    folder = tmp_path / "generated"
    folder.mkdir()
    made = go("run", GO_GENERATOR, "-p", "generated", "-t", "--tags", "json", schema, cwd=tmp_path)
    (folder / "generated.go").write_text(made, encoding="utf-8")
    go("mod", "init", "generated", cwd=folder)
    go("vet", "./...", cwd=folder)
    types = {*re.findall(r"^type (\w+) struct", made, re.MULTILINE)}
    assert types >= MODELS | {"Position", "FileInfo", "SnapshotRefOrNull"}
    # Values that may be null are pointers, never `any`.
    assert not re.findall(r"^type \w+ .*interface\{\}", made, re.MULTILINE)


def test_the_code_for_java_compiles(schema: Path, tmp_path: Path) -> None:
    programs, class_path = java_class_path()
    made = tmp_path / "java"
    made.mkdir()
    generate = Path(__file__).with_name("Generate.java")
    run(programs / "java", "-cp", class_path, generate, schema, made)
    files = sorted((made / "generated").glob("*.java"))
    run(programs / "javac", "-cp", class_path, "-d", tmp_path / "classes", *files)
    sources = {each.stem: each.read_text(encoding="utf-8") for each in files}
    assert set(sources) >= MODELS | {"Position", "FileInfo", "SnapshotRefOrNull"}
    for name, text in sources.items():
        assert "private Object " not in text, name
