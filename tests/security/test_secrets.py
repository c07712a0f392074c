"""Secrets are looked for everywhere that people and other programs read."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.job import Job, create_table, make_topics, read_records
from tests.integration.waiting import finished, until
from tests.oidc import CLIENT_SECRET, OidcKafka, oidc_security, provider
from tests.security.conftest import PLAIN_SECRET, REDIS_SECRET, SCRAM_SECRET, SecureKafka, SecureRedis
from tests.security.deployment import secure_config
from tests.security.leaks import COMMANDS, answers, command, leaks
from tests.tls import KEY_WORD

pytestmark = [pytest.mark.kafka, pytest.mark.redis]

_PROGRAM = "from sluicegate.cli.main import main; main()"
WRONG_KAFKA, WRONG_REDIS, OPTION = "wrong-secret-of-kafka", "wrong%2Dsecret-of-redis", "secret-of-the-store"
SECRETS = (
    SCRAM_SECRET,
    PLAIN_SECRET,
    REDIS_SECRET,
    KEY_WORD,
    WRONG_KAFKA,
    WRONG_REDIS,
    "wrong-secret-of-redis",
    OPTION,
)


@asynccontextmanager
async def service(config: Path, log: Path, **env: str) -> AsyncIterator[int]:
    """The coordinator at its most talkative; gives its port."""
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _PROGRAM, "run"),
            env={**os.environ, "SLUICEGATE_CONFIG": str(config), "SLUICEGATE_LOG__LEVEL": "debug", **env},
            stdout=stderr,
            stderr=stderr,
        )
    try:
        yield (await until(lambda: _ports(log), log=log))[0]
        process.send_signal(signal.SIGTERM)
        await finished(process.wait(), "the service")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _ports(log: Path) -> list[int]:
    lines = (line for line in log.read_text().splitlines() if '"listening"' in line)
    return [int(json.loads(line)["port"]) for line in lines]


async def test_no_secret_is_seen_where_all_is_well(
    secure_kafka: SecureKafka, secure_redis: SecureRedis, tmp_path: Path
) -> None:
    topics = await make_topics(secure_kafka.plaintext, secure_redis.prefix)
    table = create_table(tmp_path)
    config, log = secure_config(secure_kafka, secure_redis, table, tmp_path), tmp_path / "log"
    said: dict[str, str] = {}
    async with service(config, log) as port, Job(secure_kafka.plaintext, topics, "flights", table) as job:
        await job.begin_with_a_commit()
        for arguments in COMMANDS:
            said[" ".join(arguments)] = await command(config, *arguments)
        said |= await asyncio.to_thread(answers, port)
        for topic in (topics.events, topics.commits, topics.state):
            said[topic] = repr(await read_records(secure_kafka.plaintext, topic))
    said["log"] = log.read_text()
    assert "may be joined" in said["check"]
    assert '"committed"' in said["log"]
    assert leaks(said, SECRETS) == []


@pytest.mark.seam
async def test_no_secret_is_seen_where_it_is_wrong(
    secure_kafka: SecureKafka, secure_redis: SecureRedis, tmp_path: Path
) -> None:
    """Each as it is most easily given away: in the environment, and in an address."""
    config, log = secure_config(secure_kafka, secure_redis, "/absent/flights", tmp_path), tmp_path / "log"
    text = config.read_text().replace(f'password_file = "{tmp_path}/kafka.secret"\n', "")
    redis = text.index("[redis]")
    text = text[:redis] + text[text.index("[http]") :] + 'options."store.secret-key" = "X"\n'
    config.write_text(text.replace("X", OPTION))
    env = {
        "SLUICEGATE_KAFKA__SECURITY__PASSWORD": WRONG_KAFKA,
        "SLUICEGATE_KAFKA__REQUEST_TIMEOUT": "2s",
        "SLUICEGATE_REDIS__URL": secure_redis.url.replace("://", f"://keeper:{WRONG_REDIS}@"),
    }
    said: dict[str, str] = {}
    async with service(config, log, **env) as port:
        await until(log.read_text, lambda seen: "invalid credentials" in seen)
        said |= await asyncio.to_thread(answers, port)
        for name in ("check", "status"):
            said[name] = await command(config, name, **env)
    said["log"] = log.read_text()
    assert "refuses the login of this client" in said["readyz"]
    assert "PROBLEM" in said["check"]
    assert "kafka.security" in said["status"]
    assert leaks(said, SECRETS) == []


async def test_no_token_is_seen(unique: str, tmp_path: Path) -> None:
    """The coordinator renews its tokens, which live for seconds, and the brokers end each connection."""
    table, log, config = create_table(tmp_path), tmp_path / "log", tmp_path / "sluicegate.toml"
    reauthentication = {"listener.name.sasl_plaintext.oauthbearer.connections.max.reauth.ms": "3600000"}
    said: dict[str, str] = {}
    with provider() as given, OidcKafka(given, **reauthentication) as kafka:
        given.life = 6
        topics = await make_topics(kafka.bootstrap, unique)
        security = "".join(f'{name} = "{text}"\n' for name, text in oidc_security(given, tmp_path).items())
        config.write_text(
            f'[kafka]\nbootstrap_servers = "{kafka.sasl}"\ntopic_prefix = "{unique}"\ngroup_id = "{unique}"\n'
            f"session_timeout = 6\npartitions = 3\n[kafka.security]\n{security}"
            f'[http]\nport = 0\n[streams.flights]\ntable = "{table}"\n'
        )
        async with service(config, log) as port, Job(kafka.bootstrap, topics, "flights", table) as job:
            await job.begin_with_a_commit()
            issued = len(given.issued)
            # Sessions end with their token, so new ones begin.
            await until(lambda: len(given.issued) > issued + 2)
            await job.commit([8, 9], [1, 8, 9])
            for name in ("check", "status"):
                said[name] = await command(config, name)
            said |= await asyncio.to_thread(answers, port)
            for topic in (topics.events, topics.commits, topics.state):
                said[topic] = repr(await read_records(kafka.bootstrap, topic))
    said["log"] = log.read_text()
    assert "may be joined" in said["check"]
    assert '"committed"' in said["log"]
    assert "SaslAuthenticateRequest" in said["log"], "each request is in it"
    assert "Kafka does not answer" not in said["log"], "an end of a session is no outage"
    signatures = [token.rpartition(".")[2] for token in given.issued]
    assert leaks(said, [CLIENT_SECRET, "known-key", *given.issued, *signatures]) == []
