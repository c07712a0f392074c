"""Each command of the page about Kubernetes, as far as it runs without a cluster."""

import itertools
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.deploy import helm
from tests.deploy.test_kubernetes import build, follow_the_schema
from tests.deploy.tools import of_this_environment, run
from tests.docs.test_commands import problem_of
from tests.repository.test_layout import ROOT

PAGE: Final = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
VERBS: Final = (
    *("apply", "create secret generic", "delete", "diff", "exec", "logs", "port-forward"),
    *("rollout status", "rollout undo", "wait"),
)
"""Commands of kubectl that the page uses."""


def commands() -> list[list[str]]:
    """Return the commands of the blocks, and those in the text, word by word."""
    text = "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
    lines = text.replace("\\\n", " ").splitlines()
    lines += re.findall(r"`((?:kubectl|helm) [^`]* [^`]*)`", PAGE)
    return [shlex.split(line) for line in lines]


def of_program(name: str) -> Iterator[list[str]]:
    """Yield the arguments of each command of a program."""
    yield from (words[1:] for words in commands() if words[0] == name)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a copy of what the commands need, in which each `cp` of the page was run."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    shutil.copytree(ROOT / "examples" / "kubernetes", folder / "examples" / "kubernetes")
    for words in of_program("cp"):
        subprocess.run(["cp", *words], cwd=folder, check=True)
    return folder


def test_the_page_has_no_other_programs() -> None:
    assert {words[0] for words in commands()} == {"cp", "docker", "helm", "kubectl"}


@cache
def options_of(verb: str) -> set[str]:
    """Return the options of a command of kubectl, and those of all commands."""
    shown = "".join(
        run(of_this_environment("kubectl"), *each).stdout for each in ([*verb.split(), "--help"], ["options"])
    )
    return {*re.findall(r"^ +(?:-\w, )?(--[\w-]+)", shown, re.MULTILINE)}


@pytest.mark.slow
def test_each_command_of_kubectl_exists_and_has_its_options() -> None:
    for words in of_program("kubectl"):
        own = words[: words.index("--")] if "--" in words else words
        line = " ".join(own).replace("--namespace sluicegate ", "")
        verb = next(each for each in VERBS if line.startswith(f"{each} "))
        given = {word.partition("=")[0] for word in own if word.startswith("--")}
        assert given - options_of(verb) == set(), line


@pytest.mark.slow
def test_each_command_in_a_member_exists() -> None:
    inner = [words[words.index("--") + 1 :] for words in of_program("kubectl") if "--" in words]
    assert [problem_of(words) for words in inner] == [None] * len(inner)
    assert {"check", "history", "status"} <= {words[1] for words in inner}


@pytest.mark.slow
def test_each_file_builds_and_each_named_object_is_there(clone: Path) -> None:
    named, there = set[str](), set[str]()
    for words in of_program("kubectl"):
        for option, value in itertools.pairwise(words):
            if option == "--filename":
                objects = [*yaml.safe_load_all((clone / value).read_text(encoding="utf-8"))]
                assert {each["kind"] for each in objects} == {"Namespace"}
            elif option == "--kustomize":
                objects = build(clone / value)
                follow_the_schema(objects)
                there |= {f"{each['kind'].lower()}/{each['metadata']['name']}" for each in objects}
        named |= {word for word in words if re.fullmatch(r"(deployment|job|service)/[\w-]+", word)}
        named |= {f"job/{name}" for name in re.findall(r"delete job ([\w-]+)", " ".join(words))}
    assert {"deployment/sluicegate", "job/first-rows", "job/sluicegate-topics"} <= named
    assert named - there == set()


@pytest.mark.slow
def test_the_secrets_have_the_files_of_the_settings(clone: Path, tmp_path: Path) -> None:
    for name in ("kafka-password", "redis-password", "ca.pem"):
        (tmp_path / name).write_text("secret", encoding="utf-8")
    (tmp_path / "environment").write_text("AWS_ACCESS_KEY_ID=a\nAWS_SECRET_ACCESS_KEY=b\n", encoding="utf-8")
    made = {}
    for words in of_program("kubectl"):
        if "create" in words:
            kubectl = str(of_this_environment("kubectl"))
            command = [kubectl, *words, "--dry-run=client", "--output=json"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            secret = json.loads(done.stdout)
            made[secret["metadata"]["name"]] = {*secret["data"]}
    assert {*made} == {"sluicegate-secrets", "sluicegate-environment"}
    settings = clone / "deploy" / "kubernetes" / "overlays" / "mine" / "sluicegate.toml"
    read = re.findall(r'"/run/secrets/sluicegate/([^"]+)"', settings.read_text(encoding="utf-8"))
    assert {*read} == made["sluicegate-secrets"]


@pytest.mark.matrix
def test_each_command_of_helm_runs(clone: Path) -> None:
    rendered = 0
    for words in of_program("helm"):
        if words[0] == "upgrade":
            arguments = [word for word in words[1:] if word != "--install"]
            command = [helm.helm(), "template", *arguments, "--kube-version=1.33.0"]
            done = subprocess.run(command, cwd=clone, capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
            follow_the_schema([each for each in yaml.safe_load_all(done.stdout) if each])
            rendered += 1
        else:
            shown = helm.run(words[0], "--help").stdout
            assert {word for word in words if word.startswith("--") and word not in shown} == set()
    assert rendered == 2
