"""A store whose keys end: a guard before an S3 server, which also gives keys as the STS of AWS does.

It lets a request in that names keys which it has given, or those of the server, and no others. Keys of a real
STS live for 15 minutes at least, and nobody can end them.
"""

import http.client
import re
import threading
import time
import uuid
from collections import Counter
from datetime import UTC, datetime
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from tests.s3proxy import ACCESS_KEY

_CREDENTIAL: Final = re.compile(r"Credential=([^/]+)/")
_SECONDS: Final = 60.0
_HOP: Final = ("connection", "transfer-encoding", "content-length", "expect", "date", "server")
"""Headers of one connection."""
_ANSWER: Final = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<AssumedRoleUser><AssumedRoleId>role:lake</AssumedRoleId><Arn>arn:aws:sts::123456789012:role/lake</Arn></AssumedRoleUser>
<Credentials><AccessKeyId>{access}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>
<SessionToken>{session}</SessionToken><Expiration>{end}</Expiration></Credentials>
</AssumeRoleResult><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></AssumeRoleResponse>"""


class KeyGuard:
    """Guard on the loopback interface. `target`: address of an S3 server that checks no signatures."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._address = (str(parts.hostname), int(parts.port or 0))
        self.life = 3600.0
        """Seconds of new keys."""
        self.given: dict[str, tuple[str, str, float]] = {}
        """By the access key, its secret, its session token, and its end."""
        self.seen: Counter[str] = Counter()
        """Requests by their keys: `server`, `given`, `ended` and `unknown`."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def endpoint(self) -> str:
        """Address for clients."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def end_all(self) -> None:
        """End all keys that were given."""
        self.given = {access: (secret, session, 0.0) for access, (secret, session, _) in self.given.items()}

    def secrets(self) -> set[str]:
        """Return the secrets that were given."""
        return {text for secret, session, _ in self.given.values() for text in (secret, session)}

    def _give(self) -> bytes:
        access, end = f"ASIA{uuid.uuid4().hex[:16].upper()}", time.time() + self.life
        secret, session = uuid.uuid4().hex, uuid.uuid4().hex
        self.given[access] = (secret, session, end)
        shown = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return _ANSWER.format(access=access, secret=secret, session=session, end=shown).encode()

    def _state(self, headers: Message) -> str:
        found = _CREDENTIAL.search(headers.get("Authorization") or "")
        access = found[1] if found else ""
        if access == ACCESS_KEY:
            return "server"
        _, session, end = self.given.get(access, ("", "", 0.0))
        if not session or headers.get("x-amz-security-token") != session:
            return "unknown"
        return "given" if time.time() < end else "ended"

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = _body(handler)
        if handler.command == "POST" and b"Action=AssumeRole" in body:
            _send(handler, 200, [("Content-Type", "text/xml")], self._give())
            return
        state = self._state(handler.headers)
        self.seen[state] += 1
        if state in ("ended", "unknown"):
            code = "ExpiredToken" if state == "ended" else "InvalidAccessKeyId"
            error = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{state}</Message></Error>'
            _send(
                handler,
                400 if state == "ended" else 403,
                [("Content-Type", "application/xml")],
                error.encode(),
            )
            return
        connection = http.client.HTTPConnection(*self._address, timeout=_SECONDS)
        try:
            headers = {name: text for name, text in handler.headers.items() if name.lower() not in _HOP}
            if handler.command in ("PUT", "POST"):
                headers["Content-Length"] = str(len(body))
            connection.request(handler.command, handler.path, body or None, headers)
            answer = connection.getresponse()
            passed = [(name, text) for name, text in answer.getheaders() if name.lower() not in _HOP]
            _send(handler, answer.status, passed, answer.read(), answer.getheader("Content-Length"))
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        guard = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self) -> None:
                guard._serve(self)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = serve

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        return Handler

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding", "") != "chunked":
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    parts = []
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        parts.append(handler.rfile.read(size))
        handler.rfile.readline()
    handler.rfile.readline()
    return b"".join(parts)


def _send(
    handler: BaseHTTPRequestHandler,
    status: int,
    headers: list[tuple[str, str]],
    body: bytes,
    length: str | None = None,
) -> None:
    handler.send_response(status)
    for name, text in headers:
        handler.send_header(name, text)
    of_head = handler.command == "HEAD"
    handler.send_header("Content-Length", (length or "0") if of_head else str(len(body)))
    handler.end_headers()
    if not of_head:
        handler.wfile.write(body)
