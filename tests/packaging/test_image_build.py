"""The commands that build the image work on the files that get into it. A folder replaces the container."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.packaging.environments import Environment, new_environment, run
from tests.repository.test_layout import ROOT
from tests.repository.test_version import VERSION

pytestmark = pytest.mark.long

STAGE: Final = "/opt/sluicegate"


def commands() -> list[str]:
    """Return the shell commands of the first stage of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    first = text.split("\nFROM ")[1]
    return [re.sub(r"--mount=\S+ +", "", each) for each in re.findall("^RUN (.*)$", first, re.MULTILINE)]


def copy_context(folder: Path) -> None:
    """Copy the files that `.dockerignore` lets in."""
    kept = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *kept]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in listed:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)


def test_the_commands_of_the_image_make_an_environment_with_every_format(tmp_path: Path) -> None:
    tools = new_environment(tmp_path / "tools", seed=True)
    source, made = tmp_path / "source", Environment(tmp_path / "image")
    source.mkdir()
    copy_context(source)
    path = f"{tools.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    found = commands()
    assert len(found) == 3
    for each in found:
        run("env", f"PATH={path}", "sh", "-ec", each.replace(STAGE, str(made.folder)), cwd=source)
    assert made.call("sluicegate", "--version") == f"sluicegate, version {VERSION}\n"
    for each in ("delta", "iceberg", "paimon"):
        made.call("python", "-I", "-c", f"import sluicegate.lakes.{each}.adapter")
    locked = re.search(r"^uv==(\S+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    assert locked is not None
    assert tools.call("uv", "--version").split()[1] == locked[1]
    assert not list(made.packages.glob("pyspark*"))
