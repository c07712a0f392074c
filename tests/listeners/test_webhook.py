"""The webhook: signatures, rotation of keys, and what each answer of a receiver means."""

import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest

from sluicegate.listeners.port import Done, Failed, ListenerRefused, Refused, Result, Unknown
from sluicegate.listeners.webhook import TYPE, WebhookOptions
from tests.listeners.hosting import opened, outcome, stream
from tests.listeners.hosting import send as send_outcome
from tests.listeners.reporting import Server

OLD, NEW = b"o" * 32, b"n" * 32


def line(key: bytes) -> str:
    return f"whsec_{base64.b64encode(key).decode()}\n"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(line(OLD))
    return path


def options(secret: Path, url: str = "https://example.com/h", **more: Any) -> WebhookOptions:
    return WebhookOptions.model_validate({"url": url, "secret_file": secret, **more})


async def send(server: Server, secret: Path) -> Result:
    """Send one outcome, as the host does."""
    async with opened(TYPE, options(secret, f"{server.base}/hook")) as hook:
        (result,) = await send_outcome(hook, outcome())
        return result


@pytest.fixture
def both(secret: Path) -> Path:
    """The file while a key is rotated."""
    secret.write_text(line(NEW) + line(OLD))
    return secret


async def test_all_keys_sign_while_one_is_rotated(server: Server, both: Path) -> None:
    server.status = 204
    assert await send(server, both) == Done()
    ((_, headers),), (body,) = server.got, server.raw
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    for key in (NEW, OLD):
        digest = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        assert f"v1,{digest}" in headers["webhook-signature"].split(" ")
    assert headers["webhook-id"] == outcome().id


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (410, Refused, "410 Gone"),
        (302, Failed, "answered 302. Look at the receiver; redirects are not followed."),
        (500, Failed, "answered 500. Look at the receiver"),
        (429, Failed, "answered 429"),
    ],
)
async def test_an_answer_other_than_success(
    server: Server, secret: Path, status: int, kind: type, words: str
) -> None:
    server.status = status
    result = await send(server, secret)
    assert isinstance(result, kind)
    assert isinstance(result, Failed | Refused)
    assert words in result.reason
    assert len(server.got) == 1, "one request, and no other place"


async def test_a_request_without_an_answer_may_have_arrived(server: Server, secret: Path) -> None:
    server.hangs_up = True
    lost = await send(server, secret)
    assert isinstance(lost, Unknown)
    assert "gave no answer" in lost.reason
    assert "It gets the request again" in lost.reason
    away = await send(Server(base="http://127.0.0.1:9"), secret)
    assert isinstance(away, Failed), "nobody listens there"
    assert "Start the server, or correct the URL" in away.reason


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "cannot be read"), ("", "is empty"), ("whsec_abc\n", "line 1 is not base64"), ("x\n", "line 1")],
)
def test_a_key_that_cannot_sign_is_refused_at_the_start(text: str | None, words: str, secret: Path) -> None:
    if text is None:
        secret.unlink()
    else:
        secret.write_text(text)
    with pytest.raises(ListenerRefused, match=words) as refused:
        TYPE.check(options(secret), stream())
    assert "openssl rand -base64 32" in str(refused.value)


def test_a_webhook_that_sends_nothing_is_refused(secret: Path) -> None:
    with pytest.raises(ListenerRefused, match=r"`events` is empty, so nothing is sent"):
        TYPE.check(options(secret, events=()), stream())
