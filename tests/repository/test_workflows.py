"""Workflows, forms and hooks follow their schemas, and the workflows pass an audit."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from packaging.requirements import Requirement

from tests.deploy.tools import of_the_system, of_this_environment, run
from tests.repository.test_layout import ROOT

FOLDER: Final = ROOT / ".github"
WORKFLOWS: Final = sorted((FOLDER / "workflows").glob("*.yml"))
SCHEMAS: Final = {
    "workflows/*.yml": "github-workflows",
    "ISSUE_TEMPLATE/config.yml": "github-issue-config",
    "ISSUE_TEMPLATE/*_re*.yml": "github-issue-forms",
    "dependabot.yml": "dependabot",
}


def workflow(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / "workflows" / name).read_text(encoding="utf-8"))
    return loaded


def steps_of(file: str, job: str) -> str:
    """Return the commands of a job."""
    return "\n".join(each.get("run", "") for each in workflow(file)["jobs"][job]["steps"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    [each if "workflows" in each else pytest.param(each, marks=pytest.mark.matrix) for each in SCHEMAS],
)
def test_each_file_follows_its_schema(pattern: str) -> None:
    files = sorted(FOLDER.glob(pattern))
    assert files
    done = run(
        of_this_environment("check-jsonschema"), "--builtin-schema", f"vendor.{SCHEMAS[pattern]}", *files
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_workflows_pass_the_audit() -> None:
    done = run(of_this_environment("zizmor"), "--offline", "--no-progress", "--no-config", FOLDER)
    assert done.returncode == 0, done.stdout


def test_expressions_and_shell_of_the_workflows_pass_actionlint() -> None:
    program = of_the_system("actionlint", "go install github.com/rhysd/actionlint/cmd/actionlint")
    done = run(program, *WORKFLOWS)
    assert done.returncode == 0, done.stdout


def test_the_workflow_runs_each_python_that_the_project_accepts() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', project)
    assert found is not None
    accepted = [f"3.{minor}" for minor in range(int(found[1]), int(found[2]))]
    job = workflow("ci.yml")["jobs"]["checks"]
    assert job["strategy"]["matrix"]["python"] == accepted
    assert [each["run"] for each in job["steps"] if each.get("run") == ".ci/run"] == [".ci/run"]


def test_the_job_with_an_engine_fails_without_one() -> None:
    job = workflow("ci.yml")["jobs"]["engine"]
    assert job["env"] == {"SLUICEGATE_TEST_ENGINE": "required", "SLUICEGATE_TEST_TOOLS": "required"}
    commands = steps_of("ci.yml", "engine")
    assert "docker info" in commands
    folders = re.findall(r"tests/[\w/.]+", commands)
    assert {"tests/containers", "tests/deploy", "tests/repository"} <= {*folders}
    assert "pytest -m emulator tests/contracts/storages tests/lakes/test_emulators.py" in commands
    assert all((ROOT / each).exists() for each in folders)
    assert "continue-on-error" not in (FOLDER / "workflows" / "ci.yml").read_text(encoding="utf-8")


def test_both_architectures_of_a_release_are_built_and_run_before() -> None:
    (pushed,) = re.findall(r"--platform (\S+) --push", steps_of("release.yml", "image"))
    built = steps_of("ci.yml", "engine")
    (loop,) = re.findall(r"for each in (.+); do\n", built)
    assert pushed.split(",") == loop.split() == ["linux/amd64", "linux/arm64"]
    assert 'docker run --rm --platform "$each"' in built


@pytest.mark.slow
def test_the_weekly_audit_takes_each_package_of_the_lock_file() -> None:
    (command,) = re.findall(r"^\.venv/bin/pip-audit .*$", steps_of("weekly.yml", "packages"), re.MULTILINE)
    program, *arguments = command.split()
    done = run(of_this_environment(Path(program).name), *arguments, "--dry-run", cwd=ROOT)
    found = re.search(r"would have audited (\d+) packages", done.stderr)
    assert found is not None, done.stderr
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    requirements = map(Requirement, re.findall(r"^([a-z].*==.*?) *\\$", lock, re.MULTILINE))
    assert int(found[1]) == sum(each.marker is None or each.marker.evaluate() for each in requirements)


def test_the_weekly_scan_is_of_the_image_and_fails() -> None:
    commands = steps_of("weekly.yml", "image")
    assert "docker info" in commands
    assert "docker build --pull --tag sluicegate-coordinator ." in commands
    assert re.search(r"^grype docker:sluicegate-coordinator .*--fail-on high$", commands, re.MULTILINE)
    assert "continue-on-error" not in (FOLDER / "workflows" / "weekly.yml").read_text(encoding="utf-8")


def test_a_release_waits_for_all_checks() -> None:
    jobs = workflow("release.yml")["jobs"]
    assert jobs["checks"]["uses"] == "./.github/workflows/ci.yml"
    assert jobs["everything"]["uses"] == "./.github/workflows/nightly.yml"
    needs = {name: job.get("needs") for name, job in jobs.items()}
    assert needs == {
        "checks": None,
        "everything": None,
        "build": ["checks", "everything"],
        "attest": "build",
        "publish": "attest",
        "image": "attest",
    }


@pytest.mark.slow
def test_the_hooks_are_valid_and_run_tools_of_the_lock_file() -> None:
    done = run(of_this_environment("pre-commit"), "validate-config", ROOT / ".pre-commit-config.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    loaded = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repository in loaded["repos"] for hook in repository["hooks"]]
    assert {repository["repo"] for repository in loaded["repos"]} == {"local"}
    for hook in hooks:
        program = hook["entry"].split()[0]
        assert program.startswith(".venv/bin/")
        assert of_this_environment(Path(program).name).exists(), program
