"""Code that serves every table format names none of them."""

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from sluicegate.lakes.registry import DEFAULT_FORMAT, GROUP, install_line

ROOT = Path(__file__).parents[2]
FOLDERS = ("cli", "coordinator", "kafka", "simulator", "state_store", "writer_hooks")
FORMATS = sorted({each.name for each in entry_points(group=GROUP)} - {"memory"})


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_format_is_named(folder: str) -> None:
    # A file of Spark's state store has the name of a format: `7.delta`.
    names = re.compile(rf"(?<![.(|\w])(?:{'|'.join(FORMATS)})(?![\w|)])", re.IGNORECASE)
    found = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if names.search(line)
    }
    assert found == set()


def test_the_default_format_is_one_and_its_extra_is_in_the_install_line() -> None:
    assert DEFAULT_FORMAT in FORMATS
    assert install_line() == f'pip install "sluicegate[{DEFAULT_FORMAT}]"'
    assert install_line("spark") == f'pip install "sluicegate[{DEFAULT_FORMAT},spark]"'
