"""What a refused setting advises is set, and the settings are taken."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from sluicegate.coordinator.settings.model import Settings, SettingsError, load
from tests.coordinator.settings.test_model import MINIMAL
from tests.tls import KEY_WORD, make_certificates

KAFKA, REDIS, STREAMS = "SLUICEGATE_KAFKA__", "SLUICEGATE_REDIS__", "SLUICEGATE_STREAMS__"
SECURITY = f"{KAFKA}SECURITY__"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with certificates, their keys, and the file `word` with a password."""
    made = tmp_path_factory.mktemp("secrets")
    make_certificates(made)
    (made / "word").write_text("a\n")
    return made


def taken(env: Mapping[str, str]) -> Settings:
    """Load the settings, and make of them what the clients of Kafka and Redis get."""
    settings = load(None, env)
    settings.kafka.client_options()
    if settings.redis is not None:
        settings.redis.client_options()
    return settings


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "advice", "mended"),
    [
        (
            {f"{STREAMS}FLIGHTS__COMMIT_USER": "me", f"{STREAMS}OTHER__COMMIT_USER": "me"},
            "give each a commit_user of its own",
            [{f"{STREAMS}OTHER__COMMIT_USER": "another"}],
        ),
        (
            {f"{SECURITY}PASSWORD": "a", f"{SECURITY}PASSWORD_FILE": "{folder}/word"},
            "`password` and `password_file` are both set; set one of them",
            [{f"{SECURITY}PASSWORD": ""}, {f"{SECURITY}PASSWORD_FILE": ""}],
        ),
        (
            {f"{SECURITY}USERNAME": "me", f"{SECURITY}PASSWORD": "a"},
            "set `protocol` to SASL_SSL (or SASL_PLAINTEXT)",
            [{f"{SECURITY}PROTOCOL": "SASL_SSL"}, {f"{SECURITY}PROTOCOL": "SASL_PLAINTEXT"}],
        ),
        (
            {f"{SECURITY}PROTOCOL": "SSL", f"{SECURITY}KEY_FILE": "{folder}/server.key"},
            "`key_file` is set, but `certificate_file` is not; set both or none",
            [{f"{SECURITY}CERTIFICATE_FILE": "{folder}/server.pem"}, {f"{SECURITY}KEY_FILE": ""}],
        ),
        (
            {f"{REDIS}URL": "rediss://cache:1", f"{REDIS}KEY_FILE": "{folder}/server.key"},
            "`key_file` is set, but `certificate_file` is not; set both or none",
            [{f"{REDIS}CERTIFICATE_FILE": "{folder}/server.pem"}, {f"{REDIS}KEY_FILE": ""}],
        ),
        (
            {f"{REDIS}URL": "redis://me:a@cache:1", f"{REDIS}PASSWORD": "a"},
            "`password` is set, and `url` has one too; set one of them",
            [{f"{REDIS}PASSWORD": ""}, {f"{REDIS}URL": "redis://me@cache:1"}],
        ),
        (
            {f"{REDIS}URL": "redis://me@cache:1", f"{REDIS}USERNAME": "me", f"{REDIS}PASSWORD": "a"},
            "`username` is set, and `url` has one too; set one of them",
            [{f"{REDIS}USERNAME": ""}, {f"{REDIS}URL": "redis://cache:1"}],
        ),
        (
            {f"{REDIS}URL": "redis://cache:1", f"{REDIS}CA_FILE": "{folder}/ca.pem"},
            "begin it with rediss://",
            [{f"{REDIS}URL": "rediss://cache:1"}],
        ),
        (
            {f"{KAFKA}BOOTSTRAP_SERVERS": ""},
            "is required; set it in the file or as SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS",
            [{"SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS": "broker:9092"}],
        ),
        (
            {f"{STREAMS}FLIGHTS__TABLE": "", f"{STREAMS}OTHER__TABLE": ""},
            "add a table [streams.NAME] with the key `table`",
            [{f"{STREAMS}FLIGHTS__TABLE": "/data/flights"}],
        ),
        (
            {f"{SECURITY}PROTOCOL": "SSL", f"{SECURITY}CA_FILE": "{folder}/client.key"},
            "give PEM files, and `key_password` if the key has one",
            [{f"{SECURITY}CA_FILE": "{folder}/ca.pem"}],
        ),
        (
            {
                f"{SECURITY}PROTOCOL": "SSL",
                f"{SECURITY}CERTIFICATE_FILE": "{folder}/client.pem",
                f"{SECURITY}KEY_FILE": "{folder}/client.key",
            },
            "give PEM files, and `key_password` if the key has one",
            [{f"{SECURITY}KEY_PASSWORD": KEY_WORD}],
        ),
        (
            {f"{KAFKA}TOPIC_PREFIX": "our topics/"},
            "cannot begin a topic's name: use letters, digits, '.', '_', '-'",
            [{f"{KAFKA}TOPIC_PREFIX": "our-topics"}],
        ),
    ],
)
def test_settings_are_taken_after_what_their_refusal_advises(
    folder: Path, wrong: dict[str, str], advice: str, mended: list[dict[str, str]]
) -> None:
    given = {**MINIMAL, f"{STREAMS}OTHER__TABLE": "/data/flights", **wrong}

    def env(change: Mapping[str, str]) -> dict[str, str]:
        return {name: text.replace("{folder}", str(folder)) for name, text in {**given, **change}.items()}

    with pytest.raises(SettingsError) as raised:
        taken(env({}))
    assert advice in str(raised.value)
    for change in mended:
        taken(env(change))


def test_what_is_required_is_set_in_the_file_and_a_table_is_added(tmp_path: Path) -> None:
    path = tmp_path / "sluicegate.toml"
    path.write_text("commit_threads = 2\n", encoding="utf-8")
    with pytest.raises(SettingsError) as raised:
        load(path, {})
    assert "kafka.bootstrap_servers: is required; set it in the file or as" in str(raised.value)
    assert "add a table [streams.NAME] with the key `table`" in str(raised.value)
    path.write_text(
        'kafka.bootstrap_servers = "broker:9092"\n[streams.flights]\ntable = "/data/flights"\n',
        encoding="utf-8",
    )
    settings = load(path, {})
    assert settings.kafka.bootstrap_servers == "broker:9092"
    assert settings.streams["flights"].table == "/data/flights"
