"""What the settings and options of a login accept, and what they say to half of one."""

import json
from pathlib import Path

import pytest

from sluicegate.coordinator.settings.model import Settings, SettingsError, load
from sluicegate.writer_hooks.errors import BadOption
from sluicegate.writer_hooks.region import KafkaSettings

SECRET = "known-secret"  # noqa: S105
REQUIRED = {
    "SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS": "broker:9092",
    "SLUICEGATE_STREAMS__FLIGHTS__TABLE": "/data/flights",
}
OAUTH = {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"}
HOOK = {"kafka.bootstrap.servers": "broker:9092"}


def with_redis(**values: str) -> Settings:
    return load(None, REQUIRED | {f"SLUICEGATE_REDIS__{name.upper()}": text for name, text in values.items()})


def with_kafka(**values: str) -> Settings:
    given = {f"SLUICEGATE_KAFKA__SECURITY__{name.upper()}": text for name, text in values.items()}
    return load(None, REQUIRED | given)


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\r\n")
    return str(file)


def test_secrets_come_from_files_and_are_known_as_secrets(secret_file: str) -> None:
    settings = with_redis(url="redis://h", username="u", password_file=secret_file)
    assert settings.redis is not None
    assert settings.redis.client_options() == {"username": "u", "password": SECRET}
    kafka = with_kafka(protocol="SASL_SSL", username="u", password_file=secret_file)
    assert kafka.kafka.security.client_options()["sasl_plain_password"] == SECRET
    for each in (settings, kafka):
        assert SECRET in each.secrets()
        assert SECRET not in repr(each)
        assert SECRET not in json.dumps(each.model_dump(mode="json"))


def test_sentinels_name_the_primary() -> None:
    settings = with_redis(url=f"redis://u:{SECRET}@Main/0", sentinels="a:26379, b:26380").redis
    assert settings is not None
    assert settings.client_options() == {"sentinels": [("a", 26379), ("b", 26380)]}
    assert settings.shown == "the primary Main of the Sentinels a:26379, b:26380"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"password": SECRET, "password_file": "FILE"}, "both set"),
        ({"password_file": "/absent/file"}, "/absent/file cannot be read"),
        ({"username": "u"}, "password_file"),
        ({"ca_file": "FILE"}, "rediss://"),
        ({"url": f"redis://u:{SECRET}@h", "password": SECRET}, "`url` has one too"),
        ({"url": f"redis://u:{SECRET}@h", "username": "v", "password_file": "FILE"}, "`url` has one too"),
        ({"url": "rediss://h", "key_file": "FILE"}, "certificate_file"),
        ({"url": "rediss://Main/0", "sentinels": "a:26379"}, "TLS is not supported with Sentinels"),
        ({"url": "redis://Main:6379/0", "sentinels": "a:26379"}, "must look like redis://NAME/0"),
        ({"url": "redis://Main/0", "sentinels": "a"}, "must be host:port each"),
    ],
)
def test_half_a_login_to_redis_is_told(values: dict[str, str], said: str, secret_file: str) -> None:
    given = {name: secret_file if text == "FILE" else text for name, text in values.items()}
    with pytest.raises(SettingsError, match=said) as refused:
        with_redis(**{"url": "redis://h", **given})
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"protocol": "SASL_SSL", "username": "u"}, "password_file"),
        ({"protocol": "SASL_SSL", "username": "u", "password": SECRET, "password_file": "FILE"}, "both set"),
        ({"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"}, "token_file"),
        ({"username": "u", "password": SECRET}, "nobody would ask"),
        ({"protocol": "SSL", "token_file": "FILE"}, "nobody would ask"),
        (
            {**OAUTH, "token_source": "oidc", "token_url": "https://h/t"},
            "needs `token_client` and `token_sec",
        ),
        ({**OAUTH, "token_source": "aws-msk-iam"}, "needs `token_region`"),
        (
            {**OAUTH, "token_file": "FILE", "token_region": "eu-central-1"},
            "token_region` is set, but `token_s",
        ),
        ({**OAUTH, "token_source": "oidc", "token_url": f"https://u:{SECRET}@h/t"}, "without user and passw"),
        ({**OAUTH, "token_source": "oidc", "token_extensions": "a"}, "must be name=value"),
        ({**OAUTH, "token_source": "aws-msk-iam", "token_region": "Frankfurt"}, "token_region"),
        ({**OAUTH, "mechanism": "GSSAPI", "token_file": "FILE"}, "`mechanism` is not OAUTHBEARER"),
    ],
)
def test_half_a_login_to_kafka_is_told(values: dict[str, str], said: str, secret_file: str) -> None:
    given = {name: secret_file if text == "FILE" else text for name, text in values.items()}
    with pytest.raises(SettingsError, match=said) as refused:
        with_kafka(**given)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_a_secret_file_of_no_use_is_told_without_its_content(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match="password_file"):
        with_redis(url="redis://h", password_file=str(file))
    options = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.username": "u"}
    settings = KafkaSettings.from_options(HOOK | options | {"kafka.sasl.password.file": str(file)})
    with pytest.raises(BadOption, match=r"kafka\.sasl\.password\.file"):
        settings.client_options()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"security.protocol": "SASL_SSL"}, r"kafka\.sasl\.username"),
        ({"security.protocol": "SASL_SSL", "sasl.username": "u"}, r"kafka\.sasl\.password"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "token"),
        ({"sasl.username": "u", "sasl.password": SECRET}, "nobody would ask"),
        ({"sasl.oauth.token.url": f"https://u:{SECRET}@h"}, r"kafka\.sasl\.oauth\.token\.url must look like"),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.username": "u",
                "sasl.password": SECRET,
                "sasl.password.file": "f",
            },
            "both set",
        ),
    ],
)
def test_half_a_login_of_the_hooks_is_told(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said) as refused:
        KafkaSettings.from_options(HOOK | {f"kafka.{name}": value for name, value in options.items()})
    assert SECRET not in str(refused.value)


@pytest.mark.slow
def test_what_a_file_holds_does_not_travel_to_executors(secret_file: str) -> None:
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.username": "u",
        "kafka.sasl.password.file": secret_file,
    }
    settings = KafkaSettings.from_options(HOOK | options)
    assert settings.security.password is None
    assert settings.client_options()["sasl_plain_password"] == SECRET
