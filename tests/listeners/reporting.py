"""A real HTTP server for reports."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Server:
    """An HTTP server that answers as a test says."""

    url: str = ""
    status: int = 200
    text: str = '{"result": "SUCCESS"}'
    hangs_up: bool = False
    got: list[tuple[dict[str, object], dict[str, str]]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.got.append((await request.json(), dict(request.headers)))
        if self.hangs_up and request.transport is not None:
            request.transport.close()
        return web.Response(status=self.status, text=self.text)


@asynccontextmanager
async def reporting() -> AsyncIterator[Server]:
    """Run a server at a port of its own."""
    found = Server()
    app = web.Application()
    app.router.add_post("/done", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    found.url = f"http://127.0.0.1:{port}/done?token=secret"
    yield found
    await runner.cleanup()
