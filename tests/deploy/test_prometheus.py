"""The objects for the Prometheus Operator have the rules of deploy/prometheus, and addresses that resolve."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from sluicegate.cli.local.jars import cached_directory
from tests.deploy import helm
from tests.deploy.test_kubernetes import FOLDER, build, of_kind
from tests.docs.test_links import anchors
from tests.monitoring.files import ROOT, RULES, alerts

COPY: Final = helm.CHART / "files" / RULES.name
OBJECT: Final = ROOT / "deploy" / "kubernetes" / "components" / "prometheus" / "prometheus-rule.yaml"


def whole(text: str) -> str:
    """Return the object of kustomize with these rules: it reads no file outside of its folder."""
    head, _, _ = OBJECT.read_text(encoding="utf-8").partition("spec:\n")
    groups = text[text.index("groups:") :].splitlines(keepends=True)
    return f"{head}spec:\n" + "".join(f"  {line}" if line.strip() else line for line in groups)


def test_both_copies_have_the_rules_of_prometheus(rewrite: bool) -> None:
    text = RULES.read_text(encoding="utf-8")
    if rewrite:
        COPY.write_text(text, encoding="utf-8")
        OBJECT.write_text(whole(text), encoding="utf-8")
    else:
        advice = "run this test with --rewrite-golden"
        assert COPY.read_text(encoding="utf-8") == text, advice
        assert OBJECT.read_text(encoding="utf-8") == whole(text), advice


def runbooks(rule: dict[str, Any]) -> list[str]:
    """Return the addresses of the alerts of an object."""
    rules = [each for group in rule["spec"]["groups"] for each in group["rules"]]
    return [each["annotations"]["runbook_url"] for each in rules if "alert" in each]


@pytest.mark.slow
def test_the_runbooks_of_kustomize_are_headings_of_the_page() -> None:
    found = runbooks(of_kind(build("overlays/example"), "PrometheusRule"))
    assert len(found) == len(alerts())
    for each in found:
        page, _, anchor = each.partition("#")
        assert anchor in anchors((ROOT / page).read_text(encoding="utf-8"))


PAGE: Final = "https://docs.example/operations/"


@pytest.mark.slow
def test_an_overlay_names_the_page_of_the_runbooks(tmp_path: Path) -> None:
    copy = tmp_path / "kubernetes"
    shutil.copytree(FOLDER, copy)
    file = copy / "overlays" / "example" / "kustomization.yaml"
    text = file.read_text(encoding="utf-8")
    assert text.count("sourceValue: docs/operations.md") == 1
    file.write_text(text.replace("docs/operations.md\n    targets", f"{PAGE}\n    targets"), encoding="utf-8")
    found = runbooks(of_kind(build(copy / "overlays" / "example"), "PrometheusRule"))
    assert found == [f"{PAGE}#{name.lower()}" for name in alerts()]


@pytest.mark.matrix
def test_a_value_names_the_page_of_the_runbooks() -> None:
    given = ("--set", "prometheusRule.enabled=true")
    own, default = (
        of_kind(helm.rendered(*given, *more), "PrometheusRule")
        for more in (("--set", f"prometheusRule.runbookPage={PAGE}"), ())
    )
    assert runbooks(own) == [f"{PAGE}#{name.lower()}" for name in alerts()]
    assert runbooks(default) == [each["annotations"]["runbook_url"] for each in alerts().values()]


@pytest.mark.slow
def test_the_operator_scrapes_what_the_service_serves() -> None:
    objects = build("overlays/example")
    monitor, service = of_kind(objects, "ServiceMonitor")["spec"], of_kind(objects, "Service")
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {each["name"] for each in service["spec"]["ports"]}
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    # The name of the job in the rules.
    assert service["metadata"]["labels"][monitor["jobLabel"]] == "sluicegate"
    assert 'up{job="sluicegate"}' in alerts()["SluicegateMemberDown"]["expr"]


OPERATOR: Final = "0.95.2"
MODULE: Final = f"""\
module operator

go 1.26

require (
\tgithub.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring v{OPERATOR}
\tsigs.k8s.io/yaml v1.6.0
)
"""
PROGRAM: Final = """\
package main

import (
\t"io"
\t"os"

\tv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
\t"sigs.k8s.io/yaml"
)

func main() {
\tkinds := map[string]any{"ServiceMonitor": &v1.ServiceMonitor{}, "PrometheusRule": &v1.PrometheusRule{}}
\ttext, err := io.ReadAll(os.Stdin)
\tif err == nil {
\t\terr = yaml.UnmarshalStrict(text, kinds[os.Args[1]])
\t}
\tif err != nil {
\t\tpanic(err)
\t}
}
"""
"""Reads an object with the types of the operator itself, and refuses a field that they lack."""


def compile_reader(folder: Path) -> None:
    (folder / "go.mod").write_text(MODULE, encoding="utf-8")
    (folder / "main.go").write_text(PROGRAM, encoding="utf-8")
    for command in (["mod", "tidy"], ["build", "-o", "operator", "."]):
        subprocess.run([helm.go(), *command], cwd=folder, check=True)


def read(each: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    program = cached_directory(f"prometheus-operator-{OPERATOR}", compile_reader) / "operator"
    return subprocess.run([program, each["kind"]], input=json.dumps(each), capture_output=True, text=True)


@pytest.mark.matrix
def test_the_operator_reads_the_objects_strictly() -> None:
    of_chart = helm.rendered("--values", ROOT / "tests" / "deploy" / "everything.yaml")
    for objects in (of_chart, build("overlays/example")):
        for kind in ("PrometheusRule", "ServiceMonitor"):
            found = of_kind(objects, kind)
            done = read(found)
            assert done.returncode == 0, done.stderr
            found["spec"]["unknown"] = 1
            assert 'unknown field "unknown"' in read(found).stderr
