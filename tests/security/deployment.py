"""Settings of a coordinator that comes in with secrets."""

from pathlib import Path

from sluicegate.coordinator.settings.model import Settings, load
from tests.security.conftest import REDIS_SECRET, SCRAM_SECRET, SecureKafka, SecureRedis
from tests.tls import KEY_WORD


def secure_config(kafka: SecureKafka, redis: SecureRedis, table: str, folder: Path) -> Path:
    """Write the settings file; the secrets stand in files of their own."""
    for name, secret in {"kafka": SCRAM_SECRET, "redis": REDIS_SECRET, "key": KEY_WORD}.items():
        (folder / f"{name}.secret").write_text(f"{secret}\n")
    files = kafka.certificates
    config = folder / "sluicegate.toml"
    config.write_text(
        f"""
        [kafka]
        bootstrap_servers = "{kafka.sasl}"
        topic_prefix = "{redis.prefix}"
        group_id = "{redis.prefix}"
        session_timeout = 6
        partitions = 3
        [kafka.security]
        protocol = "SASL_SSL"
        mechanism = "SCRAM-SHA-512"
        username = "writer"
        password_file = "{folder}/kafka.secret"
        ca_file = "{files.ca}"
        [redis]
        url = "{redis.url}"
        username = "{redis.username}"
        password_file = "{folder}/redis.secret"
        ca_file = "{files.ca}"
        certificate_file = "{files.client}"
        key_file = "{files.client_key}"
        key_password_file = "{folder}/key.secret"
        key_prefix = "{redis.prefix}"
        [http]
        port = 0
        [streams.flights]
        table = "{table}"
        """
    )
    return config


def secure_settings(kafka: SecureKafka, redis: SecureRedis, table: str, folder: Path) -> Settings:
    """The settings of that file."""
    return load(secure_config(kafka, redis, table, folder), {})
