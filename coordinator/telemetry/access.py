"""Access to the HTTP endpoints: TLS, and tokens that may change while the service runs."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from sluicegate.coordinator.settings.http import REALM, HttpSettings, read_tokens
from sluicegate.kafka.settings import UnusableFile

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
