"""The layout of the repository: its folders are packages below `sluicegate`, and nothing else."""

import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAPPING = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
FOLDERS = set(MAPPING["package-dir"].values())
EXECUTED = {"tests", "tools", "examples"}
"""Folders of code that is run from the checkout, and not installed."""


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
