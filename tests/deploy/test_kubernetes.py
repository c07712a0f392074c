"""The manifests build, follow the schemas of Kubernetes, and agree with the service."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from sluicegate.coordinator.service import service
from sluicegate.coordinator.settings.model import Settings, load
from tests.deploy.tools import of_this_environment, run
from tests.repository.test_layout import ROOT

FOLDER: Final = ROOT / "deploy" / "kubernetes"
BUILDS: Final = ("base", "overlays/example")
APIS: Final = ("1.33", "1.37")
"""Versions of the API of Kubernetes that docs/kubernetes.md names."""
OF_THE_OPERATOR: Final = frozenset({"PrometheusRule", "ServiceMonitor"})
"""Kinds that the Prometheus Operator adds to the API (test_prometheus.py)."""


def build(name: str | Path) -> list[dict[str, Any]]:
    """Return the objects that `kubectl kustomize` makes of a folder, by its path or its name in `FOLDER`."""
    done = run(of_this_environment("kubectl"), "kustomize", FOLDER / name)
    assert (done.returncode, done.stderr) == (0, "")
    return [*yaml.safe_load_all(done.stdout)]


@pytest.fixture(scope="module", params=BUILDS)
def objects(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Give the objects of each build."""
    return build(request.param)


@pytest.fixture(scope="module")
def example() -> list[dict[str, Any]]:
    """Give the objects of the example."""
    return build("overlays/example")


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def pods(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield from (each["spec"]["template"] for each in objects if "template" in each.get("spec", {}))


@pytest.mark.slow
def test_each_object_follows_the_schema_strictly(objects: list[dict[str, Any]]) -> None:
    assert {"Deployment", "PodDisruptionBudget", "NetworkPolicy"} <= {each["kind"] for each in objects}
    follow_the_schema(objects)


def follow_the_schema(objects: list[dict[str, Any]]) -> None:
    """Hold each object of Kubernetes' own kinds to the schemas. Raises ValidationError."""
    own = [each for each in objects if each["kind"] not in OF_THE_OPERATOR]
    for each, version in itertools.product(own, APIS):
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.slow
def test_selectors_find_the_pods(objects: list[dict[str, Any]]) -> None:
    deployment = of_kind(objects, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    selectors = [
        deployment["spec"]["selector"]["matchLabels"],
        of_kind(objects, "Service")["spec"]["selector"],
        of_kind(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        *(each["labelSelector"]["matchLabels"] for each in spread),
    ]
    assert all({"app.kubernetes.io/component": "coordinator"}.items() <= each.items() for each in selectors)
    assert all(each.items() <= labels for each in selectors)
    policy = of_kind(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
    assert policy
    assert all(policy.items() <= each["metadata"]["labels"].items() for each in pods(objects))


@pytest.mark.slow
def test_pods_meet_the_restricted_security_standard(objects: list[dict[str, Any]]) -> None:
    meet_the_restricted_standard(objects)


def meet_the_restricted_standard(objects: list[dict[str, Any]]) -> None:
    """Hold each pod to the security standard `restricted`, and to memory with a limit."""
    for pod in pods(objects):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert {"hostNetwork", "hostPID", "hostIPC"}.isdisjoint(spec)
        assert {next(iter({*each} - {"name"})) for each in spec["volumes"]} <= {
            "configMap",
            "emptyDir",
            "secret",
        }
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()


@pytest.mark.slow
def test_the_user_is_that_of_the_image(objects: list[dict[str, Any]]) -> None:
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    for pod in pods(objects):
        context = pod["spec"]["securityContext"]
        assert f"USER {context['runAsUser']}:{context['runAsGroup']}" in image


def test_a_member_has_the_time_that_it_needs_to_stop(objects: list[dict[str, Any]]) -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    seconds = of_kind(objects, "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert f"{seconds}s" == compose["services"]["coordinator"]["stop_grace_period"]
    assert seconds > 2 * (service.GRACE + service.LAST_WORDS)


@pytest.mark.slow
def test_probes_ask_the_endpoints_of_the_service(objects: list[dict[str, Any]]) -> None:
    (container,) = of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    paths = {
        each: container[f"{each}Probe"]["httpGet"]["path"] for each in ("startup", "liveness", "readiness")
    }
    assert paths == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
    assert all(container[f"{each}Probe"]["httpGet"]["port"] == "http" for each in paths)
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]


def test_several_members_run_and_one_survives_an_eviction(objects: list[dict[str, Any]]) -> None:
    assert of_kind(objects, "Deployment")["spec"]["replicas"] >= 2
    assert of_kind(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_the_settings_are_loaded_by_the_service(objects: list[dict[str, Any]], tmp_path: Path) -> None:
    settings = settings_of(objects, tmp_path)
    assert (settings.http.host, settings.http.port) == ("0.0.0.0", 8080)  # noqa: S104
    (container,) = of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    writable = {each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")}
    assert settings.kafka.members_folder in writable
    assert container["args"] == ["run", "--config", variables_of(container)["SLUICEGATE_CONFIG"]]


def variables_of(container: dict[str, Any]) -> dict[str, str]:
    """Return the variables that a container has by value."""
    return {each["name"]: each["value"] for each in container.get("env", ())}


def settings_of(objects: list[dict[str, Any]], tmp_path: Path) -> Settings:
    """Load the settings of a member of a build, with its secrets as files below `tmp_path`."""
    text = of_kind(objects, "ConfigMap")["data"]["sluicegate.toml"]
    mounts = "/run/secrets/sluicegate"
    for name in ("kafka-password", "redis-password", "ca.pem"):
        (tmp_path / name).write_text("secret", encoding="utf-8")
    file = tmp_path / "sluicegate.toml"
    file.write_text(text.replace(mounts, str(tmp_path)), encoding="utf-8")
    (container,) = of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return load(file, variables_of(container))


@pytest.mark.slow
def test_the_example_reads_its_secrets_from_mounted_files(
    example: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert settings_of(example, tmp_path).secrets()
    for pod in pods(example):
        mounted = [each["name"] for each in pod["spec"]["volumes"] if "secret" in each]
        (container,) = pod["spec"]["containers"]
        assert mounted == ["secrets"]
        assert "secrets" in {each["name"] for each in container["volumeMounts"] if each.get("readOnly")}
    assert "Secret" not in {each["kind"] for each in example}
