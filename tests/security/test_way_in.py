"""The ways in: each mechanism against a real broker, and a whole commit behind closed doors."""

from pathlib import Path
from typing import Any

import pytest

from sluicegate.cli.checks import check_redis
from sluicegate.coordinator.service.startup import make_store
from sluicegate.coordinator.settings.model import KafkaSettings
from sluicegate.kafka.topics import BrokersUnavailable, verify_topics
from sluicegate.writer_hooks.errors import PublishFailed
from sluicegate.writer_hooks.publisher import Publisher
from sluicegate.writer_hooks.region import KafkaSettings as HookSettings
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, Job, create_table, make_topics, read_ids
from tests.integration.waiting import BACKSTOP, until
from tests.security.conftest import PLAIN_SECRET, SCRAM_SECRET, SecureKafka, SecureRedis
from tests.security.deployment import secure_settings
from tests.tls import KEY_WORD

pytestmark = [pytest.mark.kafka, pytest.mark.redis]

CLIENT = ("kafka.ssl.certificate.", "kafka.ssl.key.")
SASL_WAYS = {
    "PLAIN": PLAIN_SECRET,
    "SCRAM-SHA-256": SCRAM_SECRET,
    "SCRAM-SHA-512": SCRAM_SECRET,
    "OAUTHBEARER": None,
}


def security(kafka: SecureKafka, mechanism: str, secret: str | None, folder: Path) -> dict[str, Any]:
    """The settings of a way in; secrets in files."""
    given: dict[str, Any] = {"protocol": "SASL_SSL", "mechanism": mechanism, "ca_file": kafka.certificates.ca}
    if secret is None:
        return {**given, "token_file": kafka.token_file}
    file = folder / "password"
    file.write_text(f"{secret}\n")
    return {**given, "username": "writer", "password_file": file}


@pytest.mark.parametrize(("mechanism", "secret"), SASL_WAYS.items())
async def test_every_mechanism_over_tls(
    secure_kafka: SecureKafka,
    mechanism: str,
    secret: str | None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "aiokafka")
    given = security(secure_kafka, mechanism, secret, tmp_path)
    kafka = KafkaSettings(
        bootstrap_servers=secure_kafka.sasl, topic_prefix="doors", partitions=PARTITIONS, security=given
    )
    options = kafka.client_options()
    assert await verify_topics(options.pop("bootstrap_servers"), kafka.topic_specs(), options) == []
    assert "SaslAuthenticateRequest" in caplog.text, "each request is in it"
    # A line shows the first bytes of a request alone.
    assert (secret or secure_kafka.token_file.read_text())[:20] not in caplog.text


@pytest.mark.parametrize(("mechanism", "secret"), SASL_WAYS.items())
def test_hooks_come_in_by_every_mechanism(
    secure_kafka: SecureKafka, mechanism: str, secret: str | None, tmp_path: Path
) -> None:
    options = {
        "kafka.bootstrap.servers": secure_kafka.sasl,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.ssl.ca.location": str(secure_kafka.certificates.ca),
    }
    if secret is None:
        options["kafka.sasl.oauth.token.file"] = str(secure_kafka.token_file)
    else:
        file = tmp_path / "password"
        file.write_text(f"{secret}\n")
        options |= {"kafka.sasl.username": "writer", "kafka.sasl.password.file": str(file)}
    assert partitions_seen(secure_kafka, options) == PARTITIONS


def partitions_seen(kafka: SecureKafka, options: dict[str, str], timeout: float = BACKSTOP) -> int:
    """What a producer of the hooks hears from the broker. Raises PublishFailed."""
    publisher = Publisher(HookSettings.from_options(options))
    try:
        return publisher.partitions(kafka.topics.events, timeout)
    finally:
        publisher.close()


def test_a_client_certificate_is_a_way_in_and_needed(secure_kafka: SecureKafka) -> None:
    files = secure_kafka.certificates
    options = {
        "kafka.bootstrap.servers": secure_kafka.mutual,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.ca.location": str(files.ca),
        "kafka.ssl.certificate.location": str(files.client),
        "kafka.ssl.key.location": str(files.client_key),
        "kafka.ssl.key.password": KEY_WORD,
    }
    assert partitions_seen(secure_kafka, options) == PARTITIONS
    without = {name: value for name, value in options.items() if not name.startswith(CLIENT)}
    with pytest.raises(PublishFailed, match="did not acknowledge"):
        partitions_seen(secure_kafka, without, timeout=1.5)  # time: the broker refuses the handshake


@pytest.mark.parametrize("lacks", ["ca", "certificate", "host"])
async def test_tls_that_does_not_hold_is_refused(secure_kafka: SecureKafka, lacks: str) -> None:
    files = secure_kafka.certificates
    given: dict[str, Any] = {"protocol": "SSL", "ca_file": files.ca}
    if lacks != "certificate":
        given |= {"certificate_file": files.client, "key_file": files.client_key, "key_password": KEY_WORD}
    if lacks == "ca":
        del given["ca_file"]
    address = secure_kafka.mutual
    if lacks == "host":  # the certificate names the address alone
        address = address.replace("127.0.0.1", "localhost")
    kafka = KafkaSettings(bootstrap_servers=address, request_timeout=3.0, security=given)
    options = kafka.client_options()
    with pytest.raises(BrokersUnavailable, match="check the address and the security settings"):
        await verify_topics(
            options.pop("bootstrap_servers"), kafka.topic_specs(), options, seconds=4.0
        )  # time: as above


@pytest.mark.seam
async def test_a_commit_behind_closed_doors(
    secure_kafka: SecureKafka, secure_redis: SecureRedis, tmp_path: Path
) -> None:
    prefix = secure_redis.prefix
    topics = await make_topics(secure_kafka.plaintext, prefix)
    table = create_table(tmp_path)
    settings = secure_settings(secure_kafka, secure_redis, table, tmp_path)
    assert settings.redis is not None
    assert (await check_redis(settings.redis)).ok
    async with running(settings), Job(secure_kafka.plaintext, topics, "flights", table) as job:
        await job.register()
        await job.commit([1, 2], [1, 2])
        store = make_store(settings)
        assert store is not None
        # The view follows the commit.
        await until(lambda: store.read("flights"), lambda view: view is not None and view.committed == 1)
        await store.close()
    assert read_ids(table) == [1, 2]
