"""The image of the service has what each table format and each storage needs."""

import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from sluicegate.lakes.registry import GROUP

ROOT: Final = Path(__file__).parents[2]
OF_STORAGE: Final = {"object-stores"}


def test_the_image_installs_the_extra_of_every_format_and_storage() -> None:
    formats = {
        each.name for each in entry_points(group=GROUP) if each.dist and each.dist.name == "sluicegate"
    }
    installed = re.findall(r"--extra ([\w-]+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    assert len(installed) == len(set(installed))
    assert set(installed) == formats | OF_STORAGE
