"""A release needs its tag, and a dated section in the changelog."""

import re
import shutil
from pathlib import Path

import pytest

from tests.deploy.tools import run
from tests.repository.test_layout import ROOT
from tests.repository.test_version import VERSION


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Give a copy of the files that a release compares."""
    (tmp_path / ".ci").mkdir()
    for name in ("pyproject.toml", "CHANGELOG.md", ".ci/release-check"):
        shutil.copy2(ROOT / name, tmp_path / name)
    return tmp_path


def release_check(project: Path, tag: str) -> tuple[int, str]:
    done = run(project / ".ci" / "release-check", tag)
    return done.returncode, done.stderr


def test_the_changelog_has_a_section_of_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(VERSION)} \(", text, re.MULTILINE)


@pytest.mark.slow
def test_a_release_needs_its_tag_and_a_dated_section(project: Path) -> None:
    assert release_check(project, "v9.9.9")[0] == 1
    changelog = project / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    changelog.write_text(text.replace(f"## {VERSION} (not published yet)", f"## {VERSION}"), encoding="utf-8")
    status, said = release_check(project, f"v{VERSION}")
    assert (status, f"'## {VERSION} (YYYY-MM-DD)'" in said) == (1, True)
    dated = re.sub(rf"## {re.escape(VERSION)}.*", f"## {VERSION} (2031-02-03)", text)
    changelog.write_text(dated, encoding="utf-8")
    assert release_check(project, f"v{VERSION}") == (0, "")
