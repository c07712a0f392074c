"""A broker that refuses everything that no rule allows, and clients with a principal for each kind."""

import asyncio
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest
from click.testing import CliRunner

from sluicegate.cli.local.process import LOOPBACK, free_port
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.cli.main import main
from sluicegate.coordinator.settings.model import Settings, load
from sluicegate.kafka.clients import started
from sluicegate.kafka.internals import send_admin_request
from sluicegate.kafka.permissions import Client, Operation, Permission, lacking
from sluicegate.kafka.topics import TopicNames
from tests.integration.job import create_table
from tests.integration.waiting import until

_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_PASSWORD: Final = "word-of-each-client"  # noqa: S105
_SHOWS: Final = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.DESCRIBE}
_TOPIC, _GROUP, _LITERAL, _ALLOW = 2, 3, 3, 3


@dataclass(frozen=True)
class Guarded:
    """Addresses of a broker with an authorizer."""

    open: str
    """For the super user, who needs no login."""
    door: str
    """For everybody else."""


@contextmanager
def guarded_kafka() -> Iterator[Guarded]:
    """Run a broker with an authorizer, and a login for each kind of client."""
    door = f"{LOOPBACK}:{free_port()}"
    users = " ".join(f'user_{name_of(client)}="{_PASSWORD}"' for client in Client)
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_LOGIN} {users};",
    }
    with EmbeddedKafka(settings=settings, listeners=(f"SASL_PLAINTEXT://{door}",)) as broker:
        yield Guarded(broker.bootstrap, door)


def name_of(client: Client) -> str:
    """Return the principal of a kind of client."""
    return client.name.lower()


@dataclass(frozen=True)
class Deployment:
    """Topics, a table of the stream `flights`, and the settings of one client."""

    broker: Guarded
    prefix: str
    folder: Path
    client: Client
    table: str

    @property
    def topics(self) -> TopicNames:
        """Names of the topics."""
        return TopicNames(self.prefix)

    def settings(self, **more: Any) -> Settings:
        """Return the settings of the client; `more` are values at the top."""
        return load(self.config(**more), {})

    def config(self, **more: Any) -> Path:
        """Write the settings file of the client."""
        config = self.folder / f"{name_of(self.client)}.toml"
        streams = more.pop("streams", f'[streams.flights]\ntable = "{self.table}"\n')
        config.write_text(
            "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())
            + f'[kafka]\nbootstrap_servers = "{self.broker.door}"\ntopic_prefix = "{self.prefix}"\n'
            f'group_id = "{self.prefix}"\nsession_timeout = 6\npartitions = 3\n'
            f'[kafka.security]\nprotocol = "SASL_PLAINTEXT"\nmechanism = "PLAIN"\n'
            f'username = "{name_of(self.client)}"\npassword = "{_PASSWORD}"\n[http]\nport = 0\n{streams}'
        )
        return config

    def hook_options(self) -> dict[str, str]:
        """Return the options of a job of the stream."""
        return {
            "stream": "flights",
            "region": "r1",
            "table": self.table,
            "format": "paimon",
            "topic.prefix": self.prefix,
            "kafka.bootstrap.servers": self.broker.door,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": name_of(self.client),
            "kafka.sasl.password": _PASSWORD,
        }

    async def said(self, *arguments: str, **more: Any) -> tuple[int, str]:
        """Run a command as this client; return its exit status and output."""
        environment = {**os.environ, "SLUICEGATE_CONFIG": str(self.config(**more))}
        result = await asyncio.to_thread(CliRunner().invoke, main, arguments, env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output

    async def grant(self, permissions: Iterable[Permission]) -> None:
        """Let the client do these operations, and no other ones; wait until the broker knows it."""
        wanted = list(permissions)
        async with started(AIOKafkaAdminClient(bootstrap_servers=self.broker.open)) as admin:
            for each in wanted:
                await _allow(admin, each, self.prefix)
        await self._until_known(wanted)

    async def _until_known(self, wanted: list[Permission]) -> None:
        options = self.settings().kafka.client_options()

        # A broker tells nothing of a topic that the client may not see.
        seen = {each.topic for each in wanted if each.operation in _SHOWS} | {None}
        told = [each for each in wanted if each.topic in seen]

        async def missing() -> set[Permission]:
            return {*await lacking(options, self.client, self.prefix, self.prefix)}

        await until(missing, lambda found: found.isdisjoint(told))


async def _allow(admin: AIOKafkaAdminClient, permission: Permission, prefix: str) -> None:
    kind, name = (_GROUP, prefix) if permission.topic is None else (_TOPIC, f"{prefix}.{permission.topic}")
    principal = f"User:{name_of(permission.client)}"
    request = CreateAclsRequest(kind, name, _LITERAL, principal, "*", int(permission.operation), _ALLOW)
    answer = await send_admin_request(admin, request, admin._client.get_random_node())
    assert [each[0] for each in answer.creation_responses] == [0], answer


def deployment(broker: Guarded, prefix: str, folder: Path, client: Client) -> Deployment:
    """Make a table, and name a deployment whose topics nobody has made yet."""
    return Deployment(broker, prefix, folder, client, create_table(folder))
