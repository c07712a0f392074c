"""Fetching Kafka's jars: from a repository of small stand-ins, and from one that does not answer."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sluicegate.cli.local.errors import FetchError
from sluicegate.cli.local.jars import KAFKA_VERSION, SCALA_VERSION, SLF4J_VERSION
from sluicegate.cli.local.process import LOOPBACK, free_port
from sluicegate.cli.local.servers import EmbeddedKafka
from tests.integration.waiting import BACKSTOP

pytestmark = pytest.mark.slow

_FETCH = """
from sluicegate.cli.local.jars import kafka_jars
from sluicegate.cli.local.jars import find_java
print(*(jar.name for jar in kafka_jars(find_java())))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "cache"
    monkeypatch.setenv("SLUICEGATE_CACHE", str(directory))
    return directory


def use_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="only"/><resolvers>'
        f'<ibiblio name="only" root="{root}" m2compatible="true"/></resolvers></ivysettings>',
        encoding="utf-8",
    )
    monkeypatch.setenv("SLUICEGATE_IVY_SETTINGS", str(settings))


def publish(repository: Path, group: str, artifact: str, version: str) -> None:
    folder = repository / group.replace(".", "/") / artifact / version
    folder.mkdir(parents=True)
    (folder / f"{artifact}-{version}.pom").write_text(
        f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId>"
        f"<artifactId>{artifact}</artifactId><version>{version}</version></project>",
        encoding="utf-8",
    )
    with zipfile.ZipFile(folder / f"{artifact}-{version}.jar", "w") as jar:
        jar.writestr("empty", "")


def test_two_processes_fetch_into_one_empty_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    publish(repository, "org.apache.kafka", f"kafka_{SCALA_VERSION}", KAFKA_VERSION)
    publish(repository, "org.slf4j", "slf4j-simple", SLF4J_VERSION)
    use_repository(tmp_path, monkeypatch, f"{repository.as_uri()}/")

    command = [sys.executable, "-c", _FETCH]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=BACKSTOP)[0].split() for process in processes]

    assert answers == [[f"kafka_2.13-{KAFKA_VERSION}.jar", f"slf4j-simple-{SLF4J_VERSION}.jar"]] * 2
    assert len([entry for entry in cache.iterdir() if entry.is_dir()]) == 1


def test_a_registry_out_of_reach_is_one_sentence(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_repository(tmp_path, monkeypatch, f"http://{LOOPBACK}:{free_port()}/")
    with pytest.raises(FetchError) as raised:
        EmbeddedKafka(tmp_path / "data").start()
    message = str(raised.value)
    assert message.startswith(f"could not fetch Apache Kafka {KAFKA_VERSION}")
    assert "Connection refused" in message
    assert "SLUICEGATE_IVY_SETTINGS" in message
    assert "\n" not in message
    assert not [entry for entry in cache.iterdir() if entry.is_dir()]
