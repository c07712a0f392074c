"""One model of the connection: the service and the writer hooks fill it, and refuse the same."""

from pathlib import Path

import pytest

from sluicegate.coordinator.settings.model import KafkaSettings, SettingsError, load
from sluicegate.kafka.tokens import TokenFile
from sluicegate.writer_hooks import BadOption
from sluicegate.writer_hooks.region import KafkaSettings as HookSettings

SECRET = "known-secret"  # noqa: S105
SERVICE = {
    "SLUICEGATE_KAFKA__BOOTSTRAP_SERVERS": "broker:9092",
    "SLUICEGATE_STREAMS__FLIGHTS__TABLE": "/data/flights",
}
HOOKS = {"kafka.bootstrap.servers": "broker:9092"}


def service(**values: str) -> KafkaSettings:
    """Load the service's settings with some keys of `[kafka]`."""
    return load(
        None, SERVICE | {f"SLUICEGATE_KAFKA__{key.upper()}": text for key, text in values.items()}
    ).kafka


def hooks(**values: str) -> HookSettings:
    """Read the options of the hooks with some of `kafka.*`, with underscores for points."""
    return HookSettings.from_options(
        HOOKS | {f"kafka.{key.replace('_', '.')}": text for key, text in values.items()}
    )


@pytest.mark.parametrize(
    ("of_service", "of_hooks", "told"),
    [
        *(
            ({"bootstrap_servers": servers}, {"bootstrap_servers": servers}, "must be host:port")
            for servers in ("broker", "broker:0", "broker:65536", "broker:\N{SUPERSCRIPT TWO}", "a:1,", ":1")
        ),
        *(
            (
                {"bootstrap_servers": servers},
                {"bootstrap_servers": servers},
                "Azure Event Hubs: .* Use a Kafka",
            )
            for servers in ("n.servicebus.windows.net:9093", "a:1,n.servicebus.usgovcloudapi.net:9093")
        ),
        ({"request_timeout": "0.1ms"}, {"request_timeout_ms": "0"}, r"must be .*(0\.001|above 0)"),
        (
            {"request_timeout": "\N{SUPERSCRIPT TWO}"},
            {"request_timeout_ms": "\N{SUPERSCRIPT TWO}"},
            "must be",
        ),
        (
            {"security__protocol": "SSL", "security__key_file": __file__},
            {"security_protocol": "SSL", "ssl_key_location": __file__},
            "is set, but .* is not; set both or none",
        ),
        ({"security__protocol": "TLS"}, {"security_protocol": "TLS"}, "must be 'PLAINTEXT', 'SSL'"),
    ],
)
def test_both_refuse_the_same_with_the_same_sentence(
    of_service: dict[str, str], of_hooks: dict[str, str], told: str
) -> None:
    with pytest.raises(SettingsError, match=told) as refused:
        service(**of_service)
    assert str(refused.value).startswith("kafka.")
    with pytest.raises(BadOption, match=told) as bad:
        hooks(**of_hooks)
    assert "kafka." in str(bad.value)
    assert "`" not in str(bad.value), "options have other names than fields"


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("client_id", "must have at least 1 character"),
        ("sasl_username", "must have at least 1 character"),
        ("sasl_oauth_token_file", "must name a file"),
        ("sasl_password_file", "must name a file"),
        ("ssl_ca_location", "must name a file"),
    ],
)
def test_an_option_without_a_value_is_refused(option: str, told: str) -> None:
    with pytest.raises(BadOption, match=f"the option kafka.{option.replace('_', '.')} {told}"):
        hooks(**{option: ""})


def test_both_give_clients_the_same(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    of_service = service(
        bootstrap_servers="one:1, two:2",
        client_id="me",
        request_timeout="2s",
        security__protocol="SASL_PLAINTEXT",
        security__mechanism="SCRAM-SHA-256",
        security__username="writer",
        security__password_file=str(secret),
    )
    of_hooks = hooks(
        bootstrap_servers="one:1, two:2",
        client_id="me",
        request_timeout_ms="2000",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_username="writer",
        sasl_password_file=str(secret),
    )
    options = of_service.client_options()
    assert options == of_hooks.client_options()
    assert (options["bootstrap_servers"], options["request_timeout_ms"]) == ("one:1,two:2", 2000)
    assert options["sasl_plain_password"] == SECRET
    # The service reads the file once, with its settings; the hooks read it where they connect.
    secret.unlink()
    assert of_service.client_options()["sasl_plain_password"] == SECRET
    with pytest.raises(
        BadOption, match=r"kafka\.sasl\.password\.file: .* cannot be read on this machine: No such"
    ):
        of_hooks.client_options()


def test_a_wrong_file_of_tls_is_named_by_its_option(tmp_path: Path) -> None:
    settings = hooks(security_protocol="SSL", ssl_ca_location=str(tmp_path / "absent.pem"))
    with pytest.raises(
        BadOption, match=r"^the option kafka\.ssl\.ca\.location: cannot be used on this machine"
    ):
        settings.client_options()


async def test_a_token_is_read_for_each_connection(tmp_path: Path) -> None:
    file = tmp_path / "token"
    given = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_file": str(file),
    }
    provider = hooks(**given).client_options()["sasl_oauth_token_provider"]
    assert isinstance(provider, TokenFile)
    for token in ("one", "two"):
        file.write_text(f"{token}\n")
        assert await provider.token() == token
