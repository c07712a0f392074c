"""A receiver of webhooks, and settings of listeners that send to it."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.settings.model import Settings
from tests.doubles.http import served
from tests.integration.conftest import Place
from tests.integration.job import read_ids
from tests.integration.orders import config_of

KEY = b"0123456789abcdef0123456789abcdef"


@dataclass
class Receiver:
    """A receiver of webhooks: a real HTTP server."""

    url: str = ""
    table: str = ""
    status: int = 200
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Requests wait until it is set."""
    got: list[dict[str, Any]] = field(default_factory=list)
    """Events that were answered with 200."""
    asked: int = 0
    hidden: list[int] = field(default_factory=list)
    """Decisions of commits that the table did not have when they arrived."""

    async def handle(self, request: web.Request) -> web.Response:
        self.asked += 1
        body = await request.read()
        event, headers = json.loads(body), request.headers
        content = f"{event['id']}.{headers['webhook-timestamp']}.".encode() + body
        signature = base64.b64encode(hmac.new(KEY, content, hashlib.sha256).digest()).decode()
        assert headers["webhook-id"] == event["id"]
        if headers["webhook-signature"] != f"v1,{signature}":
            return web.Response(status=401)
        await self.gate.wait()
        if self.status == 200:
            summary = event["data"].get("summary")
            if summary is not None and len(read_ids(self.table)) < event["data"]["decision"]:
                self.hidden.append(event["data"]["decision"])
            self.got.append(event)
        return web.Response(status=self.status, headers={"location": "http://127.0.0.1:9/"})

    def decisions(self) -> list[int]:
        return [each["data"]["decision"] for each in self.got]


@asynccontextmanager
async def receiving(table: str) -> AsyncIterator[Receiver]:
    receiver = Receiver(table=table)
    receiver.gate.set()
    app = web.Application()
    app.router.add_post("/hook", receiver.handle)
    async with served(app) as address:
        receiver.url = f"{address}/hook"
        try:
            yield receiver
        finally:
            receiver.gate.set()


def hook(place: Place, receiver: Receiver, **more: Any) -> dict[str, Any]:
    """Settings of a listener `hook`."""
    secret = place.root / "secret"
    secret.write_text(f"whsec_{base64.b64encode(KEY).decode()}\n")
    own = {"url": receiver.url, "secret_file": str(secret), "timeout": 60}
    return {"type": "webhook", **own, **more}


def with_hook(place: Place, receiver: Receiver, redis_url: str | None = None, **more: Any) -> Settings:
    options = {"listeners": {"hook": hook(place, receiver, **more)}}
    return place.settings(options=options, redis_url=redis_url)


def config_with(place: Place, own: dict[str, Any]) -> Path:
    """Write the settings of the stream `flights` with a listener `hook`; returns their file."""
    config = config_of(place)
    head = config.read_text().replace("[streams.flights]", 'session_timeout = "6s"\n[streams.flights]', 1)
    config.write_text(f"{head}{table(own)}")
    return config


def table(own: dict[str, Any], stream: str = "flights") -> str:
    """Return the settings of a listener `hook` as TOML."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in own.items()]
    return "\n".join([f"[streams.{stream}.listeners.hook]", *lines, ""])


def shown(service: Service) -> dict[str, Any]:
    """State of the listener in /status."""
    stream = service.status()["streams"].get("flights", {})
    return dict(stream.get("listeners", {}).get("hook", {}))


def code(service: Service) -> str | None:
    problem = shown(service).get("problem")
    return problem["code"] if problem else None
