"""The chart renders what kustomize builds, follows the schemas of Kubernetes, and refuses unknown values."""

import copy
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from tests.deploy import helm
from tests.deploy.test_kubernetes import build, follow_the_schema, of_kind, pods
from tests.repository.test_layout import ROOT

VALUES: Final = helm.CHART / "values.yaml"
PAGE: Final = ROOT / "docs" / "kubernetes.md"
HEADING: Final = "| value | default | meaning |\n|---|---|---|\n"
EVERYTHING: Final = ROOT / "tests" / "deploy" / "everything.yaml"
"""Every value; texts and numbers differ from the defaults."""


def load(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def plain(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the objects by kind, without what names the way on which they came.

    A name of a ConfigMap ends with a digest in kustomize. A release has labels of its own, and the Job of
    Helm runs before the objects of its release, so it has its own service account and ConfigMap.
    """
    found = {}
    for each in copy.deepcopy(objects):
        hook = "helm.sh/hook" in each["metadata"].get("annotations", {})
        if each["kind"] == "Namespace" or (hook and each["kind"] != "Job"):
            continue
        each["metadata"].pop("annotations", None)
        each["metadata"].pop("labels", None)
        text = re.sub(r"(sluicegate-settings)-\w+", r"\1", json.dumps(each))
        text = re.sub(
            r'"app.kubernetes.io/instance": "\w+", |, "app.kubernetes.io/instance": "\w+"', "", text
        )
        plainer = json.loads(text)
        for template in pods([plainer]):
            template["metadata"].pop("annotations", None)
        if each["kind"] == "Job":
            plainer["spec"].pop("ttlSecondsAfterFinished", None)
            pod = plainer["spec"]["template"]["spec"]
            pod["serviceAccountName"] = "sluicegate"
            pod["volumes"][0]["configMap"]["name"] = "sluicegate-settings"
        found[each["kind"]] = plainer
    return found


def ordered(value: Any) -> Any:
    """Return a value whose lists of named things have the order of their names."""
    if isinstance(value, dict):
        return {key: ordered(each) for key, each in value.items() if key != "imagePullPolicy"}
    if isinstance(value, list):
        items = [ordered(each) for each in value]
        named = items and all(isinstance(each, dict) and "name" in each for each in items)
        return sorted(items, key=lambda each: str(each["name"])) if named else items
    return value


@pytest.mark.matrix
def test_the_chart_renders_what_kustomize_builds() -> None:
    of_chart = ordered(plain(helm.rendered("--values", helm.EXAMPLE)))
    of_kustomize = ordered(plain(build("overlays/example")))
    assert of_chart.keys() == of_kustomize.keys()
    for kind, found in of_chart.items():
        assert found == of_kustomize[kind]


@pytest.mark.matrix
def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    done = helm.run("lint", "--strict", "--kube-version=1.33.0", helm.CHART, "--values", EVERYTHING)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout


@pytest.mark.matrix
@pytest.mark.parametrize("values", [None, helm.EXAMPLE, EVERYTHING], ids=["default", "example", "everything"])
def test_each_object_follows_the_schema_strictly(values: Path | None) -> None:
    arguments = ("--values", values) if values else ()
    objects = helm.rendered(*arguments, release="lake")
    assert {"Deployment", "Job", "PodDisruptionBudget", "NetworkPolicy"} <= {each["kind"] for each in objects}
    follow_the_schema(objects)
    names = {each["metadata"]["name"] for each in objects}
    assert names == {"lake-sluicegate", "lake-sluicegate-settings", "lake-sluicegate-topics"}


@pytest.mark.matrix
def test_selectors_find_the_pods() -> None:
    objects = helm.rendered("--values", EVERYTHING)
    deployment = of_kind(objects, "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"].items()
    spread = deployment["template"]["spec"]["topologySpreadConstraints"]
    for each in (
        deployment["selector"]["matchLabels"],
        of_kind(objects, "Service")["spec"]["selector"],
        of_kind(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        *(one["labelSelector"]["matchLabels"] for one in spread),
    ):
        assert {"app.kubernetes.io/component": "coordinator"}.items() <= each.items() <= labels
    monitor = of_kind(objects, "ServiceMonitor")["spec"]
    of_service = of_kind(objects, "Service")["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= of_service.items()
    assert of_service[monitor["jobLabel"]] == "sluicegate"
    policy = of_kind(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
    assert all(policy.items() <= each["metadata"]["labels"].items() for each in pods(objects))


@pytest.mark.matrix
def test_a_change_of_the_settings_replaces_the_members(tmp_path: Path) -> None:
    other = tmp_path / "sluicegate.toml"
    other.write_text(helm.SETTINGS.read_text(encoding="utf-8") + "partial = 'allow'\n", encoding="utf-8")
    before, same, after = (
        of_kind(objects, "Deployment")["spec"]["template"]
        for objects in (
            helm.rendered(),
            helm.rendered("--set", "replicas=5"),
            helm.rendered(f"--set-file=settings={other}"),
        )
    )
    assert before == same
    assert before != after


@pytest.mark.matrix
def test_each_value_reaches_an_object() -> None:
    """Each text and number of `everything.yaml` is in what the chart renders."""
    given = load(EVERYTHING)
    assert {*leaves(load(VALUES))} == {*leaves(given, like=load(VALUES))}
    shown = json.dumps(helm.rendered("--values", EVERYTHING))
    for path, value in leaves(given, like=load(VALUES)).items():
        for each in atoms(value):
            assert json.dumps(each) in shown or str(each) in shown, path


@pytest.mark.matrix
def test_a_created_service_account_has_the_identity_of_the_cloud() -> None:
    objects = helm.rendered("--set-json", 'serviceAccount.annotations={"example/role": "lake"}')
    (account,) = (each for each in objects if each["metadata"].get("annotations") == {"example/role": "lake"})
    spec = of_kind(objects, "Deployment")["spec"]["template"]["spec"]
    assert (account["kind"], account["metadata"]["name"]) == ("ServiceAccount", spec["serviceAccountName"])


@pytest.mark.matrix
def test_each_switch_leaves_its_objects_out() -> None:
    off = [f"--set={name}=false" for name in ("topics.create", "podDisruptionBudget.enabled")]
    objects = helm.rendered(*off, "--set=networkPolicy.enabled=false", "--set=replicas=null")
    kinds = sorted(each["kind"] for each in objects)
    assert kinds == ["ConfigMap", "Deployment", "Service", "ServiceAccount"]
    assert "replicas" not in of_kind(objects, "Deployment")["spec"]


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--set", "replica=3"], "replica"),
        (["--set", "networkPolicy.enable=false"], "enable"),
        (["--set", "replicas=0"], "replicas"),
        (["--set", "image.tag=1.0"], None),
        (["--set-file=settings=/dev/null"], "settings is empty"),
    ],
)
def test_wrong_values_are_refused(arguments: list[str], reason: str | None) -> None:
    given = ("--kube-version=1.33.0", f"--set-file=settings={helm.SETTINGS}", *arguments)
    done = helm.run("template", "sluicegate", helm.CHART, *given)
    assert (done.returncode == 0) == (reason is None), done.stderr
    assert (reason or "") in done.stderr


def leaves(values: dict[str, Any], like: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the values by their path. A section of `like` with contents is one of the chart's own."""
    found = {}
    for key, value in values.items():
        default = (values if like is None else like)[key]
        if isinstance(value, dict) and isinstance(default, dict) and default and key != "resources":
            inner = leaves(value, None if like is None else default)
            found.update({f"{key}.{name}": each for name, each in inner.items()})
        else:
            found[key] = value
    return found


def atoms(value: Any) -> Iterator[Any]:
    """Yield the texts and numbers of a value, without switches and the text of settings."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from atoms(each)
    elif not isinstance(value, bool) and value is not None and "\n" not in str(value):
        yield value


def described(text: str) -> dict[str, str]:
    """Return the comments of values by their path: the lines right above a key."""
    found, path, notes = dict[str, str](), list[str](), list[str]()
    for line in text.splitlines():
        shown = re.fullmatch(r"( *)(?:# (.*)|(\w+):.*)", line)
        if shown is None:
            notes = []
        elif shown[2] is not None:
            notes.append(shown[2])
        else:
            path = [*path[: len(shown[1]) // 2], shown[3]]
            found[".".join(path)] = " ".join(notes)
            notes = []
    return found


def table() -> str:
    """Return the values as a table of the page."""
    notes, rows = described(VALUES.read_text(encoding="utf-8")), []
    for path, value in leaves(load(VALUES)).items():
        default = json.dumps(value) if len(json.dumps(value)) <= 40 else None
        rows.append(f"| `{path}` | {f'`{default}`' if default else 'see there'} | {notes[path]} |\n")
    return HEADING + "".join(rows)


def test_the_page_has_each_value_with_its_default(rewrite: bool) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(HEADING)
    after = rest[rest.index("\n\n") + 1 :]
    if rewrite:
        PAGE.write_text(before + table() + after, encoding="utf-8")
    else:
        assert page == before + table() + after, "run this test with --rewrite-golden"


def test_each_value_has_a_comment_and_a_schema() -> None:
    schema = json.loads((helm.CHART / "values.schema.json").read_text(encoding="utf-8"))
    notes = described(VALUES.read_text(encoding="utf-8"))
    for path in leaves(load(VALUES)):
        assert notes[path].endswith("."), path
        part = schema
        for name in path.split("."):
            part = part["properties"][name]
    jsonschema.validate(load(VALUES), schema)
    assert len(leaves(load(VALUES))) == len([*schema_leaves(schema)]) - 1  # `global` is for a parent chart


def schema_leaves(schema: dict[str, Any]) -> Iterator[str]:
    for name, part in schema["properties"].items():
        yield from schema_leaves(part) if "properties" in part else (name,)


def test_the_chart_has_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = load(helm.CHART / "Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (project["version"], project["version"])
