"""Table formats of other packages, each a real distribution on the path of a new process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.lakes import adapter
from sluicegate.lakes.capabilities import ReadsHistory, capable
from sluicegate.lakes.port import PORT_VERSION, TableRefused

ROOT = Path(__file__).parents[2]
ADAPTER = """
from tests.doubles.memory_lake import MemoryAdapter

class AcmeAdapter(MemoryAdapter):
    name = "acme"
    port_version = {version}

ADAPTER = AcmeAdapter()
"""
ASK = """
import sys
from sluicegate.lakes import adapter
from sluicegate.lakes.port import TableRefused

print("acme_lake" in sys.modules)
try:
    print(type(adapter(sys.argv[1])).__name__, adapter(sys.argv[1]) is adapter(sys.argv[1]))
except TableRefused as error:
    print(error)
print("acme_lake" in sys.modules)
"""


def install(folder: Path, module: str, *, package: str = "acme-lake") -> None:
    """Install a package with one module and one table format, as a wheel would be."""
    info = folder / f"{package.replace('-', '_')}-2.0.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.0\n"
    (info / "METADATA").write_text(metadata)
    (info / "entry_points.txt").write_text("[sluicegate.lakes]\nacme = acme_lake:ADAPTER\n")
    (folder / "acme_lake.py").write_text(module)


def ask(folder: Path, name: str = "acme") -> list[str]:
    """Ask for a format in a new process. Returns: imported before, the answer, imported afterwards."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, name],
        env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_format_of_another_package_is_imported_when_it_is_asked_for(tmp_path: Path) -> None:
    install(tmp_path, ADAPTER.format(version=PORT_VERSION))
    assert ask(tmp_path) == ["False", "AcmeAdapter True", "True"]
    assert ask(tmp_path, "iceberg") == ["False", "IcebergAdapter True", "False"]


def test_an_unknown_format_is_refused_with_the_installed_ones() -> None:
    with pytest.raises(TableRefused, match=r"this release knows: delta, iceberg, memory, paimon\. "):
        adapter("hudi")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "problem"),
    [
        ("", "cannot be loaded: AttributeError: module 'acme_lake' has no attribute 'ADAPTER'"),
        ("ADAPTER = 7", "gives an object of the type int, which is not an adapter"),
        ("from tests.doubles.memory_lake import ADAPTER", "gives the adapter of another format, memory"),
        (ADAPTER.format(version=99), f"implements version 99 of the port instead of {PORT_VERSION}"),
    ],
    ids=["nothing", "no adapter", "another format", "another version"],
)
def test_an_entry_point_without_an_adapter_is_refused(tmp_path: Path, module: str, problem: str) -> None:
    install(tmp_path, module)
    assert ask(tmp_path)[1].startswith(f"the table format acme of the package acme-lake {problem}")


@pytest.mark.slow
def test_a_format_of_two_packages_is_refused(tmp_path: Path) -> None:
    install(tmp_path, ADAPTER.format(version=PORT_VERSION))
    install(tmp_path, ADAPTER.format(version=PORT_VERSION), package="another-lake")
    assert "is given by the packages acme-lake and another-lake. Remove one of them" in ask(tmp_path)[1]


class _Bare:
    """Maintenance of a format without any capability."""

    location = "bare://t"


def test_a_missing_capability_is_refused_by_name() -> None:
    with pytest.raises(TableRefused, match=r"bare://t lacks the capability ReadsHistory, which it"):
        capable(_Bare(), ReadsHistory, "it")
