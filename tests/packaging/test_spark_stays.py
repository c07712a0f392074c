"""Installing this package beside a Spark never replaces that Spark, by pip and by uv."""

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Final

import pyspark
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.packaging.environments import LOCK, UV, Distributions, Environment, new_environment, run
from tests.repository.test_layout import ROOT

pytestmark = pytest.mark.long

EXTRAS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
OF_ONE_SPARK: Final = sorted(each for each in EXTRAS if re.fullmatch(r"spark\d+", each))
OWN: Final = pyspark.__version__
IMPORT: Final = "import pyspark, sluicegate.writer_hooks as w; print(pyspark.__version__, w.attach.__name__)"


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Give an environment with pip and the PySpark of the tests, as a cluster's image has one."""
    made = new_environment(tmp_path / "environment", seed=True)
    source = Path(pyspark.__file__).parents[1]
    for each in ("pyspark", "py4j", f"pyspark-{OWN}.dist-info", *(p.name for p in source.glob("py4j-*"))):
        (made.packages / each).symlink_to(source / each)
    return made


def pretend(environment: Environment, version: str) -> None:
    """Give the installed PySpark and its py4j the versions of another release, as resolvers see them."""
    old = version.startswith("3.")
    for name, pretended in (("pyspark", version), ("py4j", "0.10.9.7" if old else "0.10.9.9")):
        (folder,) = environment.packages.glob(f"{name}-*.dist-info")
        text = (folder / "METADATA").read_text(encoding="utf-8")
        text = re.sub("^Version: .*", f"Version: {pretended}", text, count=1, flags=re.MULTILINE)
        text = re.sub("py4j==[0-9.]+", "py4j==0.10.9.7" if old else "py4j==0.10.9.9", text)
        shutil.rmtree(folder) if not folder.is_symlink() else folder.unlink()
        target = environment.packages / f"{name}-{pretended}.dist-info"
        target.mkdir()
        for file, content in (("METADATA", text), ("RECORD", ""), ("INSTALLER", "")):
            (target / file).write_text(content, encoding="utf-8")


def changes_by_uv(environment: Environment, requirement: str) -> list[str]:
    """Return the names of packages that uv would install or remove, with the versions of the lock file.

    PySpark is left out of these, so that its extras alone decide.
    """
    constraints = environment.folder / "constraints.txt"
    kept = [
        line.rstrip(" \\")
        for line in LOCK.read_text(encoding="utf-8").splitlines()
        if re.match(r"[a-z0-9]", line) and not line.startswith(("pyspark==", "py4j=="))
    ]
    constraints.write_text("\n".join(kept), encoding="utf-8")
    done = run_with_messages(
        UV, "pip", "install", "--dry-run", "--python", environment.python, "-c", constraints, requirement
    )
    return re.findall(r"^ [-+~] (\S+?)(?:==| @)", done, re.MULTILINE)


def run_with_messages(*command: str | Path) -> str:
    """Run a program that writes its result to the standard error."""
    return run("sh", "-c", 'exec "$@" 2>&1', "sh", *command)


def changes_by_pip(environment: Environment, requirement: str) -> list[str]:
    """Return the names of packages that pip would install."""
    report = run(
        *(environment.python, "-m", "pip", "install", "--quiet", "--dry-run", "--report", "-"), requirement
    )
    return [each["metadata"]["name"] for each in json.loads(report)["install"]]


@pytest.mark.parametrize("extras", [("hooks", "paimon"), ("spark", "delta")])
def test_pip_leaves_the_installed_spark(
    extras: tuple[str, ...], distributions: Distributions, environment: Environment
) -> None:
    found = changes_by_pip(environment, distributions.requirement(extras))
    assert "sluicegate" in found
    assert {"pyspark", "py4j"}.isdisjoint(found)


def test_an_older_spark_stays_with_the_extras_for_it(
    distributions: Distributions, environment: Environment
) -> None:
    """`hooks` accepts each Spark, `spark` the supported ones, `spark35` those of its line."""
    for version, extras in (
        ("3.5.3", ("hooks", "spark", "spark35")),
        ("4.0.1", ("spark", "spark40")),
        ("3.4.1", ("hooks",)),
        ("4.9.0", ("hooks",)),
    ):
        pretend(environment, version)
        for extra in extras:
            found = changes_by_uv(environment, distributions.requirement((extra, "iceberg")))
            assert "sluicegate" in found
            assert {"pyspark", "py4j"}.isdisjoint(found), (version, extra, found)


def test_a_replaced_spark_would_be_noticed(distributions: Distributions, environment: Environment) -> None:
    pretend(environment, "3.4.1")
    assert "pyspark" in changes_by_uv(environment, distributions.requirement(["spark"]))


def test_the_writer_hooks_use_the_installed_spark(
    distributions: Distributions, environment: Environment
) -> None:
    environment.install(distributions.requirement(("hooks", "paimon")))
    assert environment.call("python", "-I", "-c", IMPORT).split() == [OWN, "attach"]


def test_hooks_bring_no_spark(distributions: Distributions, tmp_path: Path) -> None:
    made = new_environment(tmp_path / "environment")
    made.install(distributions.requirement(("hooks", "paimon")))
    assert not list(made.packages.glob("pyspark*"))


@pytest.mark.parametrize("extra", OF_ONE_SPARK)
def test_an_extra_accepts_the_releases_of_its_spark_alone(extra: str) -> None:
    line = re.sub(r"spark(\d)", r"\1.", extra)
    needed = [each for each in map(Requirement, EXTRAS[extra]) if each.name == "pyspark"]
    assert len(needed) == 1
    accepted = needed[0].specifier
    following = ".".join((line.split(".")[0], str(int(line.split(".")[1]) + 1)))
    assert accepted.contains(f"{line}.0")
    assert accepted.contains(f"{line}.99")
    assert not accepted.contains(f"{following}.0")
    assert accepted.contains(Version(line).base_version)


def test_each_tested_spark_has_an_extra() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    sparks = re.search(r"^SPARKS \?= (.*)$", makefile, re.MULTILINE)
    assert sparks is not None
    lines = {".".join(each.split(".")[:2]) for each in [*sparks[1].split(), OWN]}
    assert {f"spark{each.replace('.', '')}" for each in lines} == set(OF_ONE_SPARK)


def test_the_lock_file_has_every_extra_that_can_be_together() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    locked = re.search(r"^LOCKED := (.*)$", makefile, re.MULTILINE)
    assert locked is not None
    named, waiting = set[str](), locked[1].split()
    while waiting:
        named.add(extra := waiting.pop())
        for each in map(Requirement, EXTRAS[extra]):
            waiting += [inner for inner in each.extras if each.name == "sluicegate" and inner not in named]
    assert named == EXTRAS.keys() - set(OF_ONE_SPARK)
