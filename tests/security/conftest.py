"""Servers that let nobody in without a secret; the secrets are known, to be looked for."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from redis import Redis

from sluicegate.cli.local.process import LOOPBACK, free_port
from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey
from sluicegate.kafka.topics import TopicNames
from tests.integration.conftest import impatient as impatient
from tests.integration.conftest import place as place
from tests.integration.job import make_topics
from tests.tls import Certificates, make_certificates, tls_front

SCRAM_SECRET: Final = "known-secret-of-scram"  # noqa: S105
PLAIN_SECRET: Final = "known-secret-of-plain"  # noqa: S105
REDIS_SECRET: Final = "known-secret-of-redis"  # noqa: S105

_MODULES: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class SecureKafka:
    """One broker with a door for each way in."""

    plaintext: str
    sasl: str
    """SASL_SSL."""
    mutual: str
    """SSL with a client certificate."""
    certificates: Certificates
    token_file: Path
    topics: TopicNames
    """Of nobody in particular."""


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for all servers."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def secure_kafka(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureKafka]:
    """Kafka with TLS and SASL beside the open door that the tests make topics through."""
    sasl, mutual = f"{LOOPBACK}:{free_port()}", f"{LOOPBACK}:{free_port()}"
    scram = [f"SCRAM-SHA-{bits}=[name=writer,password={SCRAM_SECRET}]" for bits in (256, 512)]
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{_MODULES}.plain.PlainLoginModule required user_writer="{PLAIN_SECRET}";'
        ),
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
            f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.server_store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.ssl.ssl.client.auth": "required",
    }
    for bits in (256, 512):
        settings[f"listener.name.sasl_ssl.scram-sha-{bits}.sasl.jaas.config"] = (
            f"{_MODULES}.scram.ScramLoginModule required;"
        )
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text(_unsecured_token() + "\n")
    listeners = (f"SASL_SSL://{sasl}", f"SSL://{mutual}")
    with EmbeddedKafka(settings=settings, listeners=listeners, scram=scram) as kafka:
        topics = asyncio.run(make_topics(kafka.bootstrap, "doors"))
        yield SecureKafka(kafka.bootstrap, sasl, mutual, certificates, token, topics)


def _unsecured_token() -> str:
    """A token that a broker without an identity provider takes, as only tests may."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": "writer", "iat": now, "exp": now + 3600})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join([*encoded, ""])


@dataclass(frozen=True)
class SecureRedis:
    """A server behind TLS, with one user who may use keys of one prefix."""

    url: str
    username: str
    prefix: str


@pytest.fixture
async def secure_redis(certificates: Certificates, unique: str) -> AsyncIterator[SecureRedis]:
    """Valkey with an ACL; the wheel's build has no TLS, so a front speaks it."""
    allowed = ["ping", "hget", "hgetall", "hset", "sadd", "srem", "smembers", "del"]
    allowed += ["eval", "evalsha", "script", "multi", "exec"]
    with EmbeddedValkey() as valkey:
        keeper = ["keeper", "on", f">{REDIS_SECRET}", f"~{unique}:*", *(f"+{name}" for name in allowed)]
        with Redis.from_url(valkey.url) as admin:
            for user in (keeper, ["default", "off"]):
                admin.execute_command("ACL", "SETUSER", *user)
        async with tls_front(certificates, valkey.port) as port:
            yield SecureRedis(f"rediss://{LOOPBACK}:{port}/0", "keeper", unique)
