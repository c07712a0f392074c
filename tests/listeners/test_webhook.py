"""The webhook: signatures, rotation of keys, and what each answer of a receiver means."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from sluicegate.events.notifications import Notification, NotificationType
from sluicegate.lakes.registry import adapter
from sluicegate.listeners.port import (
    Done,
    Failed,
    ListenerRefused,
    Outcome,
    Refused,
    Result,
    Services,
    Stream,
    Unknown,
)
from sluicegate.listeners.webhook import TYPE, Webhook, WebhookOptions
from tests.events.examples import notification_of

OLD, NEW = b"o" * 32, b"n" * 32


def line(key: bytes) -> str:
    return f"whsec_{base64.b64encode(key).decode()}\n"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(line(OLD))
    return path


def outcome() -> Outcome:
    found: Any = notification_of(NotificationType.COMMITTED)
    return Outcome(found.id, found.type, found.stream, 1_234_567_890_042, found.body)


async def nothing(_: Notification) -> None:
    raise AssertionError("a webhook publishes nothing")


@asynccontextmanager
async def receiver(handle: Any) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/hook", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    finally:
        await runner.cleanup()


async def send(url: str, secret: Path, **more: Any) -> Result:
    """Send one outcome, as the host does."""
    async with aiohttp.ClientSession() as http:
        services = Services(http=http, publish=nothing, in_thread=asyncio.to_thread)
        options = WebhookOptions.model_validate({"url": url, "secret_file": secret, **more})
        hook = Webhook(options, services)
        step = hook.apply(outcome(), hook.initial())
        assert step == hook.apply(outcome(), hook.initial()), "a repetition is the same action"
        (action,) = step.actions
        return await hook.run(action)


@pytest.fixture
def both(secret: Path) -> Path:
    """The file while a key is rotated."""
    secret.write_text(line(NEW) + line(OLD))
    return secret


async def test_all_keys_sign_while_one_is_rotated(both: Path) -> None:
    seen: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        body, headers = await request.read(), request.headers
        content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        for key in (NEW, OLD):
            digest = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
            assert f"v1,{digest}" in headers["webhook-signature"].split(" ")
        seen.append(headers["webhook-id"])
        return web.Response(status=204)

    async with receiver(handle) as url:
        assert await send(url, both) == Done()
    assert seen == [outcome().id]


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (410, Refused, "410 Gone"),
        (302, Failed, "redirects are not followed. Set `url` to the new place."),
        (500, Failed, "answered 500. Look at the receiver."),
        (429, Failed, "answered 429"),
    ],
)
async def test_an_answer_other_than_success(status: int, kind: type, words: str, secret: Path) -> None:
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=status, headers={"location": "/hook"})

    async with receiver(handle) as url:
        result = await send(url, secret)
    assert isinstance(result, kind)
    assert isinstance(result, Failed | Refused)
    assert words in result.reason
    assert asked == ["/hook"], "one request, and no other place"


async def test_a_request_without_an_answer_may_have_arrived(secret: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with receiver(handle) as url:
        lost = await send(url, secret)
    assert isinstance(lost, Unknown)
    assert "gave no answer" in lost.reason
    assert "Look at the receiver." in lost.reason
    away = await send(url, secret)
    assert isinstance(away, Failed), "nobody listens there any more"
    assert "Start the receiver, or set `url`." in away.reason


def stream() -> Stream:
    opened = adapter("memory")
    return Stream("flights", "memory", opened.parse_table("memory:t"), opened, "sluicegate-flights", False)


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "cannot be read"), ("", "is empty"), ("whsec_abc\n", "line 1 is not base64"), ("x\n", "line 1")],
)
def test_a_key_that_cannot_sign_is_refused_at_the_start(text: str | None, words: str, secret: Path) -> None:
    if text is None:
        secret.unlink()
    else:
        secret.write_text(text)
    options = WebhookOptions.model_validate({"url": "https://example.com/h", "secret_file": secret})
    with pytest.raises(ListenerRefused, match=words) as refused:
        TYPE.check(options, stream())
    assert "openssl rand -base64 32" in str(refused.value)


def test_a_webhook_that_sends_nothing_is_refused(secret: Path) -> None:
    options = WebhookOptions.model_validate(
        {"url": "https://example.com/h", "secret_file": secret, "events": ()}
    )
    with pytest.raises(
        ListenerRefused, match=r"`events` is empty, so nothing is sent. Name one, or remove the listener"
    ):
        TYPE.check(options, stream())
