"""HTTP server of the service: its routes, its TLS, and the tokens that it asks for."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, Self

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from sluicegate.coordinator.observe.metrics import CONTENT_TYPE, Metrics
from sluicegate.coordinator.settings.model import REALM, CannotServe, HttpSettings, read_tokens
from sluicegate.kafka.settings import UnusableFile

# Access: TLS, and tokens that may change while the service runs.

log = structlog.get_logger(__name__)

PROBES: Final = frozenset({"/livez", "/readyz"})
_CHALLENGE: Final = f'Basic realm="{REALM}", charset="UTF-8"'
"""Browsers ask for a password then, which is the token. Every user name is taken."""
_REFUSED: Final = (
    "a token is needed: send one of http.token_files as `Authorization: Bearer TOKEN`. A browser asks for it "
    "as the password, with any user name"
)


class Access:
    """Checks tokens, and has the TLS context of the server; None without a certificate."""

    def __init__(self, http: HttpSettings) -> None:
        """Read the files. Raises UnusableFile."""
        self._http = http
        self._tokens = read_tokens(http)
        self.context: Final = None if http.certificate_file is None else _context(http)

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer 401 to a request that needs a token and has none that is valid."""
        is_open = self._http.open_probes and request.path in PROBES
        if is_open or not self._tokens or self._is_valid(request.headers.get("Authorization", "")):
            return await handler(request)
        return web.json_response(
            {"problem": _REFUSED},
            status=401,
            headers={"WWW-Authenticate": _CHALLENGE, "Cache-Control": "no-store"},
        )

    def _is_valid(self, header: str) -> bool:
        digest = _digest(_given(header))
        # Every token is compared, in constant time, so that the time tells nothing.
        return sum(hmac.compare_digest(digest, _digest(token)) for token in self._tokens) > 0

    async def renew(self, token_files: Sequence[Path] | None = None) -> None:
        """Read the files again; `token_files` replace those before, if they are given.

        Tokens and certificate stay in force if one of the files cannot be used.
        """
        wanted = self._http.token_files if token_files is None else tuple(token_files)
        try:
            await asyncio.to_thread(self._renew, self._http.model_copy(update={"token_files": wanted}))
        except UnusableFile as error:
            event = "tokens and certificate not reloaded, those before stay in force"
            log.error(event, problem=str(error))  # noqa: TRY400 - the text is enough

    def _renew(self, http: HttpSettings) -> None:
        tokens = read_tokens(http)
        if self.context is not None:
            # A pair that does not fit must not reach the context in use.
            _context(http)
            _load(self.context, http)
        self._http, self._tokens = http, tokens


def _given(header: str) -> bytes:
    """Return the token of an `Authorization` header; empty if it has none."""
    scheme, _, value = header.partition(" ")
    match scheme.lower():
        case "bearer":
            return value.strip().encode(errors="replace")
        case "basic":
            try:
                return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
            except (binascii.Error, ValueError):
                return b""
    return b""


def _digest(token: bytes) -> bytes:
    """Return a digest, because tokens of different lengths are compared."""
    return hashlib.sha256(token).digest()


def _context(http: HttpSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load(context, http)
    return context


def _load(context: ssl.SSLContext, http: HttpSettings) -> None:
    """Load the certificate into a context. Raises UnusableFile."""
    if http.certificate_file is None:
        return
    try:
        # Without a password OpenSSL would prompt for one on the terminal.
        context.load_cert_chain(http.certificate_file, http.key_file, password="")
    except (OSError, ValueError) as error:
        raise UnusableFile(
            "http.certificate_file",
            f"cannot be used: {error}; give a PEM certificate and its key without a password",
        ) from error


# HTTP server of the service with /livez, /readyz, /metrics and /status. Others add the page to it.

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
