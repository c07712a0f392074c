"""Types of listeners of other packages, each a real distribution on the path of a new process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.listeners.port import ListenerRefused, listener_type

TYPE = """
from sluicegate.listeners.webhook import WebhookType

class Acme(WebhookType):
    pass

TYPE = Acme()
"""
ASK = """
from sluicegate.listeners.port import ListenerRefused
from sluicegate.listeners.port import listener_type

try:
    print(type(listener_type("acme")).__name__)
except ListenerRefused as error:
    print(error)
"""


def ask(folder: Path, module: str) -> str:
    """Ask for the type of an installed package in a new process."""
    info = folder / "acme_hooks-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-hooks\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text("[sluicegate.listeners]\nacme = acme_hooks:TYPE\n")
    (folder / "acme_hooks.py").write_text(module)
    env = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_a_type_of_another_package_is_found(tmp_path: Path) -> None:
    assert ask(tmp_path, TYPE) == "Acme"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("1 / 0", "cannot be loaded: ZeroDivisionError: division by zero. Upgrade that package"),
        (
            "TYPE = 7",
            "lacks members of sluicegate.listeners.port.ListenerType. "
            "Install releases of acme-hooks and sluicegate that fit together",
        ),
    ],
    ids=["broken", "no type"],
)
def test_a_type_that_cannot_be_used_names_its_package(tmp_path: Path, module: str, words: str) -> None:
    assert ask(tmp_path, module).startswith(f"the type acme of the package acme-hooks {words}")


def test_an_unknown_type_names_those_that_are_known() -> None:
    known = "unknown type 'pigeon'; this release knows: mark-done, openlineage, tags, webhook. "
    with pytest.raises(ListenerRefused, match=known):
        listener_type("pigeon")
