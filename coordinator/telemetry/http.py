"""HTTP server of the service with /livez, /readyz, /metrics and /status. Others add the page to it."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, Self

from aiohttp import web

from sluicegate.coordinator.settings.http import CannotServe, HttpSettings
from sluicegate.coordinator.telemetry.access import Access
from sluicegate.coordinator.telemetry.metrics import CONTENT_TYPE, Metrics
from sluicegate.kafka.settings import UnusableFile

_CLOSING_SECONDS: Final = 2.0


class Health(Protocol):
    """Health of the service for the endpoints; called on the event loop, so it must not block."""

    def alive(self) -> str | None:
        """Return the reason to restart the process; None while its consumer loop runs."""
        ...

    def unready(self) -> list[str]:
        """Return the reasons why the service is not ready: unread assignments, unavailable dependencies."""
        ...

    def status(self) -> dict[str, Any]:
        """Return the state of the service as JSON values."""
        ...


class HealthServer:
    """Serves the endpoints inside `async with`."""

    def __init__(
        self,
        health: Health,
        metrics: Metrics,
        http: HttpSettings,
        add_more: Callable[[web.Application], None] = lambda _: None,
    ) -> None:
        """`add_more` adds further routes to the application. Raises CannotServe."""
        self._health = health
        self._metrics = metrics
        self._wanted = (http.host, http.port)
        try:
            self.access = Access(http)
        except UnusableFile as error:
            raise CannotServe(str(error)) from error
        self._port: int | None = None
        app = web.Application(middlewares=[self.access.check])
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._render)
        app.router.add_get("/status", self._status)
        add_more(app)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=_CLOSING_SECONDS
        )

    async def __aenter__(self) -> Self:
        """Start to listen. Raises CannotServe."""
        host, port = self._wanted
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, ssl_context=self.access.context).start()
        except OSError as error:
            await self._runner.cleanup()
            raise CannotServe(
                f"cannot listen on {host}:{port}: {error.strerror or error}; change http.host or http.port"
            ) from error
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening, and wait up to 2 s for running requests."""
        self._port = None
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """Port of the server. Raises RuntimeError outside `async with`."""
        if self._port is None:
            raise RuntimeError("the port is known only inside `async with`")
        return self._port

    async def _livez(self, _: web.Request) -> web.Response:
        reason = self._health.alive()
        body: dict[str, Any] = {"alive": reason is None}
        if reason is not None:
            body["reason"] = reason
        return web.json_response(body, status=200 if reason is None else 503)

    async def _readyz(self, _: web.Request) -> web.Response:
        reasons = self._health.unready()
        return web.json_response({"ready": not reasons, "reasons": reasons}, status=503 if reasons else 200)

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response(self._health.status())

    async def _render(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        await response.prepare(request)
        for part in self._metrics.slices():
            await response.write(part)
            # Commits get their turn. A thread would hold the interpreter's lock for longer.
            await asyncio.sleep(0)
        await response.write_eof()
        return response
