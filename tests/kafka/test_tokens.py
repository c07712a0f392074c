"""Sources of tokens: what they ask, keep, drop and say; and what a real broker says of tokens."""

import asyncio
import base64
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aiokafka import AIOKafkaProducer

from sluicegate.coordinator.settings.model import KafkaSettings
from sluicegate.kafka.clients import started
from sluicegate.kafka.internals import LoginRefused, _choose_authenticator
from sluicegate.kafka.outages import quiet_clients
from sluicegate.kafka.tokens import (
    PAUSE,
    Issued,
    MskTokens,
    NoToken,
    OidcTokens,
    RenewedToken,
    oidc_tokens,
    parse_extensions,
)
from sluicegate.kafka.topics import BrokersUnavailable, verify_topics
from sluicegate.writer_hooks.errors import BadOption, PublishFailed
from sluicegate.writer_hooks.publisher import Publisher
from sluicegate.writer_hooks.region import KafkaSettings as HookSettings
from tests.cli.deployment import Deployment, check_page, make_table
from tests.integration.job import PARTITIONS, make_topics
from tests.integration.waiting import BACKSTOP
from tests.oidc import CLIENT, CLIENT_SECRET, OidcKafka, Provider, oidc_security, provider


@pytest.fixture
def oidc() -> Iterator[Provider]:
    with provider() as given:
        yield given


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "client.secret"
    file.write_text(f"{CLIENT_SECRET}\n")
    return file


def tokens_of(oidc: Provider, secret: Path) -> OidcTokens:
    return OidcTokens(f"{oidc.url}/token?key=known-key", CLIENT, secret, "kafka", "", None)


def write(file: Path, text: str) -> None:
    file.write_text(f"{text}\n")


class Counting(RenewedToken):
    """A source whose answers the test gives."""

    def __init__(self, life: float) -> None:
        super().__init__()
        self.life = life
        self.asked = 0
        self.fails = False

    async def issue(self) -> Issued:
        self.asked += 1
        await asyncio.sleep(0)
        if self.fails:
            raise NoToken("away")
        return Issued(f"token-{self.asked}", self.life)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic time of the sources."""
    now = [1000.0]
    monkeypatch.setattr("sluicegate.kafka.tokens.time.monotonic", lambda: now[0])
    return now


async def test_a_token_is_renewed_after_most_of_its_life(clock: list[float]) -> None:
    source = Counting(100)
    assert await asyncio.gather(*(source.token() for _ in range(5))) == ["token-1"] * 5
    clock[0] += 79.9
    assert await source.token() == "token-1"
    clock[0] += 0.2
    assert await source.token() == "token-2"


async def test_a_refused_token_is_dropped_but_nobody_insists(clock: list[float]) -> None:
    source = Counting(100)
    await source.token()
    source.refused()
    assert await source.token() == "token-1", "another new one would be refused, too"
    clock[0] += PAUSE
    source.refused()
    assert await source.token() == "token-2"
    source.fails = True
    clock[0] += PAUSE
    source.refused()
    for _ in range(3):
        with pytest.raises(NoToken, match="away"):
            await source.token()
    assert source.asked == 3
    source.fails = False
    clock[0] += PAUSE
    assert await source.token() == "token-4"


async def test_the_challenge_for_a_refused_token_is_answered(clock: list[float]) -> None:
    """The broker then says why. Without an answer, the login looks like a success."""
    source = Counting(100)
    connection: Any = SimpleNamespace(_sasl_oauth_token_provider=source)
    login = _choose_authenticator(connection)
    assert await login.step(None) == (b"n,,\x01auth=Bearer token-1\x01\x01", True)
    clock[0] += PAUSE
    assert await login.step(b'{"status":"invalid_token"}') == (b"\x01", True)
    assert await login.step(b"") is None
    assert await source.token() == "token-2"
    login = _choose_authenticator(connection)
    await login.step(None)
    assert await login.step(b"") is None, "the broker has let the client in"


async def test_the_last_token_serves_until_its_end_while_the_source_is_away(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    source = Counting(100)
    await source.token()
    source.fails = True
    clock[0] += 99
    assert await source.token() == "token-1"
    assert "the token is not renewed: away. The present one is valid for 1 s" in caplog.text
    clock[0] += 1
    with pytest.raises(NoToken, match="away"):
        await source.token()


def test_clients_in_loops_of_several_threads_share_a_token() -> None:
    source = Counting(100)
    assert {asyncio.run(source.token()) for _ in range(3)} == {"token-1"}


async def test_the_endpoint_is_asked_with_the_credentials_of_the_client(oidc: Provider, secret: Path) -> None:
    source = tokens_of(oidc, secret)
    assert await source.token() == oidc.issued[0]
    assert oidc.asked == [{"grant_type": ["client_credentials"], "scope": ["kafka"]}]
    source = tokens_of(oidc, secret)
    write(secret, "a new secret")
    oidc.secret = "a new secret"  # noqa: S105
    assert await source.token() == oidc.issued[1]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"secret": "another"},
            "refuses the client writer with the status 401 (invalid_client: who is Basic [secret]?)",
        ),
        ({"status": 503}, "refuses the client writer with the status 503"),
        ({"status": 302}, "refuses the client writer with the status 302"),
        ({"answer": b"<html>"}, "answers without a token"),
        ({"answer": b"[1]"}, "answers without a token"),
        ({"answer": json.dumps({"access_token": "a\x01b"}).encode()}, "answers without a token"),
    ],
)
async def test_an_endpoint_that_gives_no_token_is_named(
    oidc: Provider, secret: Path, change: dict[str, Any], told: str
) -> None:
    for name, value in change.items():
        setattr(oidc, name, value)
    with pytest.raises(NoToken) as refused:
        await tokens_of(oidc, secret).token()
    assert f"the token endpoint {oidc.url}/token {told}" in str(refused.value)
    assert CLIENT_SECRET not in str(refused.value)
    assert "known-key" not in str(refused.value)


async def test_a_reason_that_repeats_the_secret_is_told_without_it(oidc: Provider, secret: Path) -> None:
    oidc.status, oidc.answer = 400, json.dumps({"error": f"bad\n{CLIENT_SECRET}"}).encode()
    with pytest.raises(NoToken, match=r"400 \(bad\[secret\]\)$"):
        await tokens_of(oidc, secret).token()


async def test_an_endpoint_that_is_away_is_named(secret: Path) -> None:
    source = OidcTokens("http://127.0.0.1:1/token", CLIENT, secret, "", "", None)
    with pytest.raises(NoToken, match=r"^the token endpoint http://127.0.0.1:1/token gives no answer: .+"):
        await source.token()
    write(secret, "")
    source = OidcTokens("http://127.0.0.1:1/token", CLIENT, secret, "", "", None)
    with pytest.raises(NoToken, match=f"^the secret file {secret} is empty$"):
        await source.token()


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that gives no credentials of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/absent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/absent")
    return monkeypatch


@pytest.mark.slow
async def test_a_token_of_msk_is_signed_once_for_most_of_its_life(
    no_aws: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    no_aws.setenv("AWS_ACCESS_KEY_ID", "KEY")
    no_aws.setenv("AWS_SECRET_ACCESS_KEY", "known-secret-of-aws")
    source = MskTokens("eu-central-1")
    with caplog.at_level(logging.DEBUG):
        token = await source.token()
    signed = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert signed.hostname == "kafka.eu-central-1.amazonaws.com"
    values = parse_qs(signed.query)
    assert (values["Action"], values["X-Amz-Expires"]) == (["kafka-cluster:Connect"], ["900"])
    assert await source.token() == token
    for secret in (token, values["X-Amz-Signature"][0], "known-secret-of-aws"):
        assert secret not in caplog.text


@pytest.mark.slow
async def test_credentials_that_are_missing_are_named(no_aws: pytest.MonkeyPatch) -> None:
    source = MskTokens("eu-central-1")
    with pytest.raises(
        NoToken, match=r"no credentials .*: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or"
    ):
        await source.token()
    no_aws.setenv("AWS_ACCESS_KEY_ID", "KEY")
    source = MskTokens("eu-central-1")
    with pytest.raises(NoToken, match="Partial credentials found in env, missing: AWS_SECRET_ACCESS_KEY"):
        await source.token()


def test_without_the_signer_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.kafka.tokens.find_spec", lambda _: None)
    with pytest.raises(
        BadOption, match=r"the option kafka\.sasl\.oauth\.token\.source: aws-msk-iam needs pip"
    ):
        HookSettings.from_options(
            {
                "kafka.bootstrap.servers": "b:9098",
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.mechanism": "OAUTHBEARER",
                "kafka.sasl.oauth.token.source": "aws-msk-iam",
                "kafka.sasl.oauth.token.region": "eu-central-1",
            }
        ).client_options()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a", "must be name=value"),
        ("a=", "must be name=value"),
        ("a=1,a=2", "once"),
        ("auth=x", "not `auth`"),
        ("a1=x", "letters alone"),
        ("a=\x01", "must be name=value"),
    ],
)
def test_extensions_that_no_broker_takes_are_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_extensions(text)


@pytest.fixture(scope="module")
def doors() -> Iterator[tuple[Provider, OidcKafka]]:
    """A provider, and a broker that asks it for its keys; sessions of the broker end with the token."""
    with provider() as given:
        settings = {"listener.name.sasl_plaintext.oauthbearer.connections.max.reauth.ms": "3600000"}
        with OidcKafka(given, **settings) as kafka:
            asyncio.run(make_topics(kafka.bootstrap, "doors"))
            yield given, kafka


@pytest.fixture
def door(doors: tuple[Provider, OidcKafka]) -> tuple[Provider, OidcKafka]:
    """The same, without a token of an earlier test."""
    oidc_tokens.cache_clear()
    oidc, _ = doors
    oidc.life, oidc.issued = 3600, []
    return doors


def settings_of(kafka: OidcKafka, security: dict[str, Any]) -> KafkaSettings:
    return KafkaSettings(
        bootstrap_servers=kafka.sasl, topic_prefix="doors", partitions=PARTITIONS, security=security
    )


def options_of(kafka: OidcKafka, security: dict[str, Any]) -> dict[str, str]:
    """The same as options of a job."""
    tokens = {name: value for name, value in security.items() if name.startswith("token_")}
    given = {f"kafka.sasl.oauth.{name.replace('_', '.')}": str(value) for name, value in tokens.items()}
    given |= {"kafka.security.protocol": security["protocol"], "kafka.sasl.mechanism": security["mechanism"]}
    return {"kafka.bootstrap.servers": kafka.sasl, **given}


@pytest.fixture
def forged(tmp_path: Path) -> dict[str, Any]:
    """Settings with a token that no provider has signed."""
    file = tmp_path / "token"
    file.write_text("known.forged.token\n")
    return {"protocol": "SASL_PLAINTEXT", "mechanism": "OAUTHBEARER", "token_file": file}


@pytest.mark.kafka
@pytest.mark.seam
async def test_a_token_of_a_provider_is_a_way_in(
    door: tuple[Provider, OidcKafka], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    oidc, kafka = door
    security = oidc_security(oidc, tmp_path)
    settings = settings_of(kafka, security)
    quiet_clients()
    # A command that ran in this process has raised the level of the client.
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "aiokafka"):
        options = settings.client_options()
        servers = options.pop("bootstrap_servers")
        assert await verify_topics(servers, settings.topic_specs(), options) == []
        publisher = Publisher(HookSettings.from_options(options_of(kafka, security)))
        try:
            counted = await asyncio.to_thread(publisher.partitions, "doors.events", BACKSTOP)
        finally:
            await asyncio.to_thread(publisher.close)
    assert counted == PARTITIONS
    assert len(oidc.issued) == 1, "all clients of a process share a token"
    assert "SaslAuthenticateRequest" in caplog.text, "each request is a line at this level"
    for secret in (CLIENT_SECRET, "known-key", oidc.issued[0], oidc.issued[0].rpartition(".")[2]):
        assert secret not in caplog.text


@pytest.mark.kafka
@pytest.mark.seam
def test_check_shows_the_token_and_proves_the_brokers(
    door: tuple[Provider, OidcKafka], tmp_path: Path, rewrite: bool
) -> None:
    oidc, kafka = door
    security = oidc_security(oidc, tmp_path)
    config = tmp_path / "sluicegate.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{kafka.sasl}"\ntopic_prefix = "doors"\n[kafka.security]\n'
        + "".join(f'{name} = "{value}"\n' for name, value in security.items())
        + f'[streams.flights]\ntable = "{make_table(tmp_path, "flights")}"\n'
    )
    deployment = Deployment(config, {})
    stands_for = {kafka.sasl: "BROKERS", oidc.url: "PROVIDER", str(tmp_path): "/FOLDER"}
    page = check_page("oidc", deployment, stands_for, rewrite=rewrite)
    for secret in (CLIENT_SECRET, "known-key", *oidc.issued):
        assert secret not in page
    # One that the provider does not issue any more is named, and no message is appended.
    oidc_tokens.cache_clear()
    oidc.status = 503
    refused = deployment.run("check", "--table", "flights")
    oidc.status = 200
    assert "refuses the client writer with the status 503" in refused.stdout
    assert "check kafka.security" in refused.stdout
    assert "sluicegate.probe" not in refused.stdout


@pytest.mark.kafka
@pytest.mark.seam
async def test_a_token_that_the_brokers_refuse_is_named(
    door: tuple[Provider, OidcKafka], forged: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """aiokafka takes such a token for accepted; then nothing answers until a timeout."""
    _, kafka = door
    settings = settings_of(kafka, forged)
    options = settings.client_options()
    with pytest.raises(LoginRefused, match="invalid_token"):
        async with started(AIOKafkaProducer(**options)):
            pass
    said = r"refuses the login of this client: .*invalid_token.*; check the security settings"
    with pytest.raises(BrokersUnavailable, match=said):
        await verify_topics(options.pop("bootstrap_servers"), settings.topic_specs(), options)
    publisher = Publisher(HookSettings.from_options(options_of(kafka, forged)))
    try:
        with pytest.raises(PublishFailed, match=r"refuses the login of this job: .*invalid_token"):
            await asyncio.to_thread(publisher.partitions, "doors.events", 5.0)  # time: it tries until then
    finally:
        await asyncio.to_thread(publisher.close)
    assert "forged" not in caplog.text
