"""Counts in texts, and the command that installs an extra."""

import json
import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement

from sluicegate.installation import command_of, install_command
from sluicegate.texts import counted

ROOT: Final = Path(__file__).parents[2]


def test_one_thing_is_singular() -> None:
    assert [counted(number, "record") for number in (0, 1, 2, 1_200)] == [
        "0 records",
        "1 record",
        "2 records",
        "1,200 records",
    ]


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": ROOT.as_uri(), "dir_info": {"editable": True}}, f'pip install ".[delta,glue]" in {ROOT}'),
        ({"url": "file:///gone", "dir_info": {}}, 'pip install ".[delta,glue]" in the folder of the clone'),
        (
            {"url": "file:///dist/sluicegate-1-py3-none-any.whl", "archive_info": {}},
            'pip install "sluicegate[delta,glue] @ file:///dist/sluicegate-1-py3-none-any.whl"',
        ),
        (
            {
                "url": "https://host/tools.git",
                "vcs_info": {"vcs": "git", "requested_revision": "v1", "commit_id": "5f3c"},
                "subdirectory": "commits",
            },
            'pip install "sluicegate[delta,glue] @ git+https://host/tools.git@5f3c#subdirectory=commits"',
        ),
        (None, 'pip install ".[delta,glue]" in the folder of the clone'),
    ],
)
def test_an_extra_comes_from_where_the_package_came(origin: Any, command: str) -> None:
    assert command_of(None if origin is None else json.dumps(origin), ("delta", "glue")) == command


def test_pip_takes_the_command_of_an_installed_wheel(tmp_path: Path) -> None:
    """The address that an installer records is one that pip reads."""
    requirement = command_of(
        json.dumps({"url": (tmp_path / "sluicegate-1-py3-none-any.whl").as_uri(), "archive_info": {}}),
        ("delta",),
    )
    found = Requirement(shlex.split(requirement)[2])
    assert (found.name, found.extras) == ("sluicegate", {"delta"})
    assert found.url == (tmp_path / "sluicegate-1-py3-none-any.whl").as_uri()


def test_this_clone_is_named() -> None:
    assert install_command("delta") == f'pip install ".[delta]" in {ROOT}'


def test_no_text_has_an_install_command_of_its_own() -> None:
    packages = re.findall(
        r'^"sluicegate[\w.]*" = "(\w+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    modules = [path for folder in packages for path in (ROOT / folder).rglob("*.py")]
    own = [
        path.name for path in modules if re.search(r"pip install .{0,3}(sluicegate|\.\[)", path.read_text())
    ]
    assert own == ["installation.py"]
