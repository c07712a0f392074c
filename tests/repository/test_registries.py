"""No file names the host of a package registry: a mirror, or an index of a company, works unchanged."""

import re
import subprocess
from typing import Final

import pytest

from tests.repository.test_layout import ROOT

HOSTS: Final = re.compile(
    r"py"
    r"pi\.org|python"
    r"hosted\.org|npm"
    r"js\.|crates"
    r"\.io|maven"
    r"\.org|proxy\.go"
    r"lang|"
    r"(?:ghcr|quay|docker|registry\.k8s)"
    r"\.io|\b--(?:extra-)?index-url|deb"
    r"ian\.org"
)


@pytest.mark.slow
def test_no_file_names_a_registry() -> None:
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    found = {}
    for name in filter(None, names):
        if (path := ROOT / name).is_file() and path.suffix not in {".png", ".avro", ".parquet"}:
            text = path.read_bytes().decode(errors="replace")
            if hits := {each[0] for each in HOSTS.finditer(text)}:
                found[name] = hits
    assert found == {}
