"""The built distributions have the files that users need, and work in an environment of their own."""

import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import Final

import pytest
from packaging.specifiers import SpecifierSet

from sluicegate import documents
from tests.packaging.environments import Distributions, new_environment, run
from tests.repository.test_extras import MODULES, modules_of
from tests.repository.test_layout import MAPPING, ROOT

pytestmark = pytest.mark.long

VERSION: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
IMPORT: Final = (
    "import importlib, json, sys\nfor each in json.loads(sys.argv[1]): importlib.import_module(each)"
)


def sources() -> dict[str, Path]:
    """Return the files of the installed folders that git knows, by their path in the wheel."""
    found = {}
    for package, folder in MAPPING["package-dir"].items():
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", folder]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for name in map(Path, listed.stdout.split()):
            found[(Path(*package.split(".")) / name.relative_to(folder)).as_posix()] = ROOT / name
    return found


@pytest.mark.seam
def test_the_wheel_has_each_file_of_the_packages_and_no_other(distributions: Distributions) -> None:
    expected = {name: path.read_bytes() for name, path in sources().items()}
    assert {"sluicegate/py.typed", "sluicegate/coordinator/web/static/index.html"} <= expected.keys()
    expected |= {f"sluicegate/schemas/{name}": text.encode() for name, text in documents.render().items()}
    assert "sluicegate/schemas/http/openapi.json" in expected
    with zipfile.ZipFile(distributions.wheel) as wheel:
        names = {each for each in wheel.namelist() if ".dist-info/" not in each}
        assert names == expected.keys()
        assert [name for name in names if wheel.read(name) != expected[name]] == []


def test_pip_builds_a_wheel_with_the_same_files(distributions: Distributions, tmp_path: Path) -> None:
    """Its isolated build gives the requirements of the build by a path, where uv has an environment."""
    environment = new_environment(tmp_path / "environment", seed=True)
    wheels = ("pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path / "wheels")
    run(environment.python, "-m", *wheels, distributions.sdist)
    (made,) = (tmp_path / "wheels").iterdir()
    with zipfile.ZipFile(distributions.wheel) as expected, zipfile.ZipFile(made) as found:
        assert sorted(found.namelist()) == sorted(expected.namelist())


@pytest.mark.seam
def test_the_wheel_describes_itself(distributions: Distributions) -> None:
    assert distributions.wheel.name == f"sluicegate-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(distributions.wheel) as wheel:
        folder = f"sluicegate-{VERSION}.dist-info"
        assert f"{folder}/licenses/LICENSE" in wheel.namelist()
        text = wheel.read(f"{folder}/METADATA").decode()
    head = text.partition("\n\n")[0].splitlines()
    assert {f"Version: {VERSION}", "Requires-Python: <3.14,>=3.11", "License-Expression: Apache-2.0"} <= {
        *head
    }
    # Without an extra, no table format and no Spark comes along.
    needed = [each for each in head if each.startswith("Requires-Dist:") and "extra ==" not in each]
    assert not [each for each in needed if any(name in each for name in ("pyspark", "pyarrow", "pandas"))]


@pytest.mark.seam
@pytest.mark.matrix
def test_an_index_would_take_the_distributions(distributions: Distributions) -> None:
    """The metadata are valid, and the README is a page that it can show."""
    files = (distributions.sdist, distributions.wheel)
    printed = run(sys.executable, "-m", "twine", "check", "--strict", *files)
    assert printed.count("PASSED") == len(files), printed


@pytest.mark.seam
def test_the_wheel_says_for_whom_it_is(distributions: Distributions) -> None:
    with zipfile.ZipFile(distributions.wheel) as wheel:
        about = message_from_bytes(wheel.read(f"sluicegate-{VERSION}.dist-info/METADATA"))
    classifiers = about.get_all("Classifier")
    assert about["Author"] == "Sluicegate"
    assert about["Keywords"]
    assert classifiers is not None
    supported = SpecifierSet(about["Requires-Python"])
    named = {
        each.rpartition(" ")[2]
        for each in classifiers
        if each.startswith("Programming Language") and "." in each
    }
    assert named == {f"3.{minor}" for minor in range(30) if supported.contains(f"3.{minor}.0")}
    extras = about.get_all("Provides-Extra")
    assert extras is not None
    # pip 23 takes an extra with a dot for unknown, exits with 0, and installs nothing of it.
    assert [each for each in extras if not re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", each)] == []


def test_the_sdist_builds_without_the_repository(distributions: Distributions) -> None:
    """The wheel is built from the sdist; the tests stay in the repository."""
    with tarfile.open(distributions.sdist) as sdist:
        names = {Path(*Path(each.name).parts[1:]).as_posix() for each in sdist.getmembers() if each.isfile()}
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert not [name for name in names if name.startswith(("tests/", "tools/", ".venv/", "build/"))]


@pytest.mark.parametrize("extra", [each for each in MODULES if "," not in each])
def test_a_fresh_environment_imports_and_runs(
    extra: str, distributions: Distributions, tmp_path: Path
) -> None:
    environment = new_environment(tmp_path / "environment")
    environment.install(distributions.requirement(filter(None, [extra])))
    modules = sorted({*modules_of(""), *(modules_of(extra) if extra else ())})
    environment.call("python", "-I", "-c", IMPORT, json.dumps(modules))
    if extra:
        return
    assert environment.call("sluicegate", "--version") == f"sluicegate, version {VERSION}\n"
    assert "--config" in environment.call("sluicegate", "check", "--help")
    environment.call("sluicegate", "init", "--table", str(tmp_path / "lake" / "flights"), cwd=tmp_path)
    written = tomllib.loads((tmp_path / "sluicegate.toml").read_text(encoding="utf-8"))
    assert written["streams"]["flights"]["table"] == str(tmp_path / "lake" / "flights")
    schema = environment.call(
        "python", "-I", "-c", "import sluicegate.events.schemas as s; print(s.__file__)", cwd=tmp_path
    )
    assert Path(schema.strip()).is_relative_to(environment.packages)
