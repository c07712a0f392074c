"""Where the tests' servers come from: addresses in the environment, containers, or child processes."""

import gc
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import redis
import yaml

from sluicegate.cli.local.jars import fetched_jars
from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey
from tests.integration.waiting import wait_until

COMPOSE_FILE: Final = Path(__file__).parents[1] / "docker-compose.yml"


_RELEASE: Final = os.environ.get("SLUICEGATE_TEST_KAFKA_RELEASE")


def choose_release() -> None:
    """Have all brokers of the tests be of the release in the environment, which has a list of its jars."""
    if _RELEASE:
        listed = Path(__file__).parent / "kafka" / f"kafka-{_RELEASE}.jars"
        EmbeddedKafka.jars = staticmethod(lambda: fetched_jars(f"Apache Kafka {_RELEASE}", listed))


@dataclass(frozen=True, slots=True)
class ComposeService:
    """What the tests need of one service of the compose file."""

    image: str
    environment: Mapping[str, str]
    command: list[str]


def compose_service(name: str) -> ComposeService:
    """Read one service of docker-compose.yml, the one place for images and server settings."""
    service = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))["services"][name]
    return ComposeService(service["image"], service.get("environment", {}), service.get("command", []))


@contextmanager
def kafka_server() -> Iterator[str]:
    """Give the bootstrap address of a Kafka for the whole run."""
    given = os.environ.get("SLUICEGATE_TEST_KAFKA")
    if given:
        yield given
    elif not _RELEASE and engine_answers():
        with _kafka_container() as bootstrap:
            yield bootstrap
    else:
        with EmbeddedKafka() as kafka:
            yield kafka.bootstrap


@contextmanager
def redis_server() -> Iterator[str]:
    """Give the URL of a Redis-protocol server for the whole run."""
    given = os.environ.get("SLUICEGATE_TEST_REDIS")
    if given:
        yield given
    elif engine_answers():
        with _valkey_container() as url:
            yield url
    else:
        with EmbeddedValkey() as valkey:
            yield valkey.url


@cache
def engine_answers() -> bool:
    """Ask whether a container engine is there, without a trace when it is not."""
    from docker import errors, from_env  # type: ignore[import-untyped]

    with warnings.catch_warnings():
        # A failed connection leaves its socket to the collector; that is docker's noise, not ours.
        warnings.simplefilter("ignore", ResourceWarning)
        answers = True
        try:
            client = from_env(timeout=60)  # time: a probe; without an engine the connection is refused
            client.ping()
            client.close()
        except errors.DockerException:
            answers = False
        gc.collect()
    return answers


def _container(service: ComposeService) -> Any:
    from testcontainers.core.container import DockerContainer

    container = DockerContainer(service.image).with_envs(**service.environment)
    return container.with_command(service.command) if service.command else container


@contextmanager
def _kafka_container() -> Iterator[str]:
    from sluicegate.cli.local.process import free_port

    service = compose_service("kafka")
    # A broker must know its outside address before it starts, so the outside port is chosen here.
    port = free_port()
    container = _container(service).with_bind_ports(port, port)
    host = container.get_container_host_ip()
    container.with_envs(
        KAFKA_LISTENERS=f"INTERNAL://:9092,EXTERNAL://:{port},CONTROLLER://:9093",
        KAFKA_ADVERTISED_LISTENERS=f"INTERNAL://localhost:9092,EXTERNAL://{host}:{port}",
    )
    with container:
        wait_until(
            lambda: b"Kafka Server started" in container.get_logs()[0],
            what=f"Kafka in a container at {host}:{port}",
        )
        yield f"{host}:{port}"


@contextmanager
def _valkey_container() -> Iterator[str]:
    with _container(compose_service("valkey")).with_exposed_ports(6379) as container:
        host, port = container.get_container_host_ip(), int(container.get_exposed_port(6379))
        wait_until(lambda: _answers_ping(host, port), what=f"Valkey in a container at {host}:{port}")
        yield f"redis://{host}:{port}/0"


def _answers_ping(host: str, port: int) -> bool:
    with redis.Redis(
        host=host, port=port, socket_timeout=1.0, socket_connect_timeout=1.0
    ) as client:  # time: repeated
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
