"""The first writer of the page about Kubernetes: its program, and its manifests."""

import asyncio
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy.test_kubernetes import build, follow_the_schema, meet_the_restricted_standard, pods
from tests.integration.coordinator import running, settings_for
from tests.integration.job import make_topics
from tests.repository.test_layout import ROOT
from tests.s3proxy import BUCKET, S3Proxy

FOLDER: Final = ROOT / "examples" / "kubernetes"
EXAMPLE: Final = ROOT / "deploy" / "kubernetes" / "overlays" / "example"


def read(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


def test_the_writer_has_the_stream_and_the_brokers_of_the_coordinator() -> None:
    options, settings = read(FOLDER / "options.toml"), read(EXAMPLE / "sluicegate.toml")
    stream, kafka = settings["streams"][options["stream"]], settings["kafka"]
    assert (options["table"], options["format"]) == (stream["table"], stream["format"])
    assert options["kafka.bootstrap.servers"] == kafka["bootstrap_servers"]
    security = {
        "protocol": options["kafka.security.protocol"],
        "mechanism": options["kafka.sasl.mechanism"],
        "username": options["kafka.sasl.username"],
        "password_file": options["kafka.sasl.password.file"],
        "ca_file": options["kafka.ssl.ca.location"],
    }
    assert security == kafka["security"]


@pytest.mark.slow
def test_the_writer_is_a_pod_like_the_others() -> None:
    objects, others = build(FOLDER), build(EXAMPLE)
    follow_the_schema(objects)
    meet_the_restricted_standard(objects)
    assert {each["metadata"]["namespace"] for each in objects} == {"sluicegate"}
    (image,) = {pod["spec"]["containers"][0]["image"] for pod in [*pods(objects), *pods(others)]}
    assert image.startswith("registry.example/")
    (pod,) = pods(objects)
    coordinator = next(pods(others))["spec"]
    (container,) = pod["spec"]["containers"]
    assert container["envFrom"] == coordinator["containers"][0]["envFrom"]
    assert [each for each in pod["spec"]["volumes"] if "secret" in each] == [
        each for each in coordinator["volumes"] if "secret" in each
    ]
    # The NetworkPolicy of the coordinator does not cover it.
    assert pod["metadata"]["labels"]["app.kubernetes.io/name"] != "sluicegate"


async def write(kafka_bootstrap: str, prefix: str, table: str, folder: Path) -> list[str]:
    """Run the program of the pod twice beside a coordinator, and return the lines of both runs."""
    await make_topics(kafka_bootstrap, prefix)
    options = {
        key: value for key, value in read(FOLDER / "options.toml").items() if not key.startswith("kafka.s")
    } | {"table": table, "kafka.bootstrap.servers": kafka_bootstrap, "topic.prefix": prefix}
    file = folder / "options.toml"
    file.write_text("".join(f'"{key}" = "{value}"\n' for key, value in options.items()), encoding="utf-8")
    command = [sys.executable, str(FOLDER / "first_rows.py"), str(file)]
    lines: list[str] = []
    stream = {"table": table, "format": options["format"]}
    async with running(settings_for(kafka_bootstrap, prefix, {options["stream"]: stream})):
        for _ in range(2):
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, env=os.environ
            )
            assert done.returncode == 0, done.stderr
            lines += done.stdout.splitlines()
    return lines


PRINTED: Final = [
    *("committed: 2 rows", "1  item 1", "2  item 2"),
    *("committed: 2 rows", "1  item 1", "2  item 2", "3  item 3", "4  item 4"),
]


@pytest.mark.kafka
async def test_the_program_writes_to_a_mounted_folder(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    assert await write(kafka_bootstrap, unique, str(tmp_path / "lake" / "orders"), tmp_path) == PRINTED


@pytest.mark.kafka
async def test_the_program_writes_to_an_object_store(
    kafka_bootstrap: str, s3proxy: S3Proxy, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3proxy.environment().items():
        monkeypatch.setenv(name, value)
    table = f"s3://{BUCKET}/{unique}/orders"
    assert await write(kafka_bootstrap, unique, table, tmp_path) == PRINTED
