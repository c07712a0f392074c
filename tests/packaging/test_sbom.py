"""The bill of materials of a release is valid, and lists what the image installs."""

import json
import os
import re
import tomllib
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.deploy.tools import of_this_environment
from tests.packaging.environments import LOCK, Distributions, run
from tests.repository.test_layout import ROOT
from tests.repository.test_version import VERSION

pytestmark = pytest.mark.long


def test_the_bill_of_materials(distributions: Distributions, tmp_path: Path) -> None:
    output = tmp_path / "sluicegate.cdx.json"
    tools = of_this_environment("python").parent
    run("env", f"{'SLUICEGATE'}_TOOLS={tools}", ROOT / ".ci" / "sbom", distributions.wheel, output)
    text = output.read_text(encoding="utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    about = document["metadata"]["component"]
    assert (about["name"], about["version"], about["type"]) == ("sluicegate", VERSION, "application")
    found = {each["name"].lower().replace("_", "-"): each for each in document["components"]}
    assert {"aiokafka", "pyarrow", "pypaimon", "pyiceberg", "deltalake", "obstore"} <= found.keys()
    assert {"pytest", "ruff", "pyspark"}.isdisjoint(found)
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE))
    for name in ("aiokafka", "click", "pypaimon"):
        assert found[name]["version"] == locked[name]
        assert found[name]["purl"].startswith(f"pkg:pypi/{name}@")
    # The document names what was installed from, not where it was.
    assert str(tmp_path.parent) not in text
    assert os.sep + "tmp" + os.sep not in text


def test_the_bill_has_the_extras_of_the_image() -> None:
    image = re.findall(r"--extra ([\w-]+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    script = (ROOT / ".ci" / "sbom").read_text(encoding="utf-8")
    found = re.search(r"sluicegate\[([\w,-]+)\]", script)
    assert found is not None
    assert sorted(found[1].split(",")) == sorted(image)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(image) <= extras["optional-dependencies"].keys()
