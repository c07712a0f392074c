"""The layout of the repository: its folders are packages below `sluicegate`, and nothing else."""

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAPPING = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
FOLDERS = set(MAPPING["package-dir"].values())
EXECUTED = {"tools", "tests", "examples"}
"""Folders of code that is run from the checkout, and not installed."""


def bare_imports(source: str) -> Iterator[str]:
    """Give the imports that find a root folder only because the checkout is on the path."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        yield from (name for name in names if name.partition(".")[0] in FOLDERS)


def sources() -> list[Path]:
    """Return the Python files of the installed packages, and those that are run from the checkout."""
    return [path for folder in sorted(FOLDERS | EXECUTED) for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.slow
def test_no_module_imports_a_root_folder_by_its_bare_name() -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for path in sources()
        if (names := list(bare_imports(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import kafka", ["kafka"]),
        ("from events.codec import read_event", ["events.codec"]),
        ("def late():\n    import cli.main as main", ["cli.main"]),
        ("from sluicegate.kafka import topics\nimport aiokafka\nfrom . import events", []),
    ],
)
def test_a_bare_name_is_noticed(source: str, found: list[str]) -> None:
    assert list(bare_imports(source)) == found


def test_every_folder_with_modules_is_installed() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    folders = {str(Path(name).parent).replace("/", ".") for name in listed if "/" in name}
    root = {"sluicegate": MAPPING["package-dir"]["sluicegate"]}
    installed = {root.get(name, name.removeprefix("sluicegate.")) for name in MAPPING["packages"]}
    assert {name for name in folders if name.partition(".")[0] not in EXECUTED} == installed


def test_every_installed_folder_gets_into_the_image() -> None:
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{folder}" for folder in FOLDERS} <= set(kept)
