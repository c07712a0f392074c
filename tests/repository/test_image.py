"""The image has what the service can use, and each place that starts it names a command after its program."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.docs.test_commands import problem_of

ROOT: Final = Path(__file__).parents[2]
OTHERS: Final = re.compile(r"hooks|spark.*|embedded|java|demo")
"""Extras of jobs, and of a try on one machine."""


def dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_image_installs_each_extra_of_the_service() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = re.findall(r"--extra ([\w-]+)", dockerfile())
    assert len(installed) == len(set(installed))
    assert set(installed) == {each for each in project["optional-dependencies"] if not OTHERS.fullmatch(each)}


def instruction(name: str) -> list[str]:
    """Return the words of an instruction of the image."""
    (found,) = re.findall(f"^{name} (\\[.*\\])$", dockerfile(), re.MULTILINE)
    words: list[str] = json.loads(found)
    return words


def test_the_image_runs_the_program_with_a_command() -> None:
    assert instruction("ENTRYPOINT") == ["sluicegate"]
    assert problem_of(["sluicegate", *instruction("CMD")]) is None


def commands_in(value: Any) -> Iterator[list[str]]:
    """Yield the commands of all services and containers that use the image."""
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from commands_in(each)
    if isinstance(value, dict) and value.get("image") == "sluicegate-coordinator":
        assert "entrypoint" not in value
        yield value.get("args") or value["command"]


@pytest.mark.parametrize(
    "file",
    [
        "docker-compose.yml",
        "deploy/kubernetes/base/deployment.yaml",
        "deploy/kubernetes/components/topics/job.yaml",
    ],
)
def test_what_starts_the_image_gives_a_command_of_the_program(file: str) -> None:
    found = list(commands_in(yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))))
    assert found
    for each in found:
        assert (each[0] in ("run", "topics"), problem_of(["sluicegate", *each])) == (True, None)
