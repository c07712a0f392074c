"""The version is in pyproject.toml alone, and every part of the product shows that one."""

import subprocess
import sys
import tomllib

import pytest

import sluicegate
from sluicegate.coordinator.observe.metrics import Metrics
from tests.repository.test_layout import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


@pytest.mark.slow
def test_package_command_and_metric_have_the_version_of_the_project() -> None:
    assert sluicegate.__version__ == VERSION
    command = [
        sys.executable,
        "-c",
        "from sluicegate.cli.main import main; main(prog_name='sluicegate')",
        "--version",
    ]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown == f"sluicegate, version {VERSION}\n"
    assert f'sluicegate_build_info{{version="{VERSION}"}} 1.0' in Metrics().render().decode()


@pytest.mark.slow
def test_a_checkout_that_is_not_installed_has_no_version_and_works() -> None:
    """Without the distribution's metadata, as in a zip file beside a job."""
    program = (
        "import importlib.metadata as m\n"
        "def version(name): raise m.PackageNotFoundError(name)\n"
        "m.version = version\n"
        "import sluicegate; print(sluicegate.__version__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "0+unknown\n"
