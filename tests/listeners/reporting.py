"""A real HTTP server for reports, webhooks and lineage."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.doubles.http import served


@dataclass
class Server:
    """An HTTP server that answers as a test says."""

    base: str = ""
    status: int = 200
    text: str = '{"result": "SUCCESS"}'
    hangs_up: bool = False
    got: list[tuple[Any, dict[str, str]]] = field(default_factory=list)
    """Body and headers of each request."""
    raw: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.base}/done?token=secret"

    async def answer(self, request: web.Request) -> web.Response:
        self.got.append((await request.json(), dict(request.headers)))
        self.raw.append(await request.read())
        if self.hangs_up and request.transport is not None:
            request.transport.abort()
        return web.Response(status=self.status, text=self.text, headers={"location": "/another"})


@asynccontextmanager
async def reporting() -> AsyncIterator[Server]:
    """Run a server at a port of its own."""
    found = Server()
    app = web.Application()
    app.router.add_post("/{path:.*}", found.answer)
    async with served(app) as found.base:
        yield found
