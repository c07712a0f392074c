"""Helm, the chart, and the objects that it renders."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from sluicegate.cli.local.jars import cached_directory
from tests.deploy.tools import of_the_system
from tests.repository.test_layout import ROOT

VERSION: Final = "3.22.0"
CHART: Final = ROOT / "deploy" / "helm" / "sluicegate"
SETTINGS: Final = ROOT / "deploy" / "kubernetes" / "overlays" / "example" / "sluicegate.toml"
EXAMPLE: Final = ROOT / "deploy" / "helm" / "example.yaml"


def helm() -> str:
    """Return Helm: the one on the PATH, else one that Go builds, once for each user in some minutes."""
    return shutil.which("helm") or str(cached_directory(f"helm-{VERSION}", _build) / "helm")


def go() -> str:
    """Return Go. Without it, skip the test, or fail if SLUICEGATE_TEST_TOOLS is `required`."""
    return of_the_system("go", "Go 1.26 or later")


def _build(folder: Path) -> None:
    module = f"helm.sh/helm/v3/cmd/helm@v{VERSION}"
    subprocess.run([go(), "install", module], env=os.environ | {"GOBIN": str(folder)}, check=True)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Helm, and return its exit status and output."""
    return subprocess.run([helm(), *arguments], capture_output=True, text=True, check=False)


def rendered(*arguments: str | Path, release: str = "sluicegate") -> list[dict[str, Any]]:
    """Return the objects of a release in the namespace `sluicegate`, with the settings of the example."""
    done = run(
        *("template", release, CHART, "--namespace", "sluicegate", "--kube-version", "1.33.0"),
        *(f"--set-file=settings={SETTINGS}", *arguments),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [each for each in yaml.safe_load_all(done.stdout) if each is not None]
