"""The files in `changes/` become the next section of the changelog, and a release needs one."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.tools import of_this_environment, run
from tests.repository.test_layout import ROOT
from tests.repository.test_version import VERSION

CONFIGURATION: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "towncrier"
]
TYPES: Final = [each["directory"] for each in CONFIGURATION["type"]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Give a copy of the files that the changelog is made of."""
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy2(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "changes", tmp_path / "changes")
    (tmp_path / ".ci").mkdir()
    shutil.copy2(ROOT / ".ci" / "release-check", tmp_path / ".ci")
    return tmp_path


def draft(project: Path) -> subprocess.CompletedProcess[str]:
    command = (
        of_this_environment("towncrier"),
        "build",
        "--draft",
        "--version",
        "9.9.9",
        "--date",
        "2031-02-03",
    )
    return run(*command, cwd=project)


def release_check(project: Path, tag: str) -> tuple[int, str]:
    done = run(project / ".ci" / "release-check", tag)
    return done.returncode, done.stderr


@pytest.mark.slow
def test_each_fragment_has_a_valid_name(project: Path) -> None:
    done = draft(project)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("## 9.9.9 (2031-02-03)")


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES)
def test_a_fragment_becomes_an_entry(project: Path, kind: str) -> None:
    (project / "changes" / f"+words.{kind}.md").write_text("History shows the watermark.\n", encoding="utf-8")
    shown = draft(project).stdout
    assert f"### {kind.capitalize()}\n" in shown
    assert "- History shows the watermark." in shown


@pytest.mark.slow
@pytest.mark.parametrize("name", ["+words.feature.md", "words.md", "notes.txt"])
def test_a_fragment_of_another_type_is_refused(project: Path, name: str) -> None:
    (project / "changes" / name).write_text("Text.\n", encoding="utf-8")
    done = draft(project)
    assert (done.returncode, f"Invalid news fragment name: {name}" in done.stderr) == (1, True), done.stderr


def test_the_page_lists_each_type() -> None:
    page = (ROOT / "changes" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == TYPES


def test_the_changelog_has_a_section_of_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(VERSION)} \(", text, re.MULTILINE)
    assert text.count("<!-- towncrier release notes start -->") == 1


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
    for each in (project / "changes").glob("+*"):
        each.unlink()
    assert release_check(project, f"v{VERSION}") == (0, "")
    (project / "changes" / "+words.fixed.md").write_text("Text.\n", encoding="utf-8")
    status, said = release_check(project, f"v{VERSION}")
    assert (status, "changes/+words.fixed.md" in said) == (1, True)
