"""A double of an S3 server, with failures that no real server gives on demand.

It keeps objects in memory and serves one bucket, path style. The contract suite of storages runs against it
and against a real server, so the two agree where no fault strikes (tests/contracts/storages).
"""

import asyncio
import hashlib
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Final, Self
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from aiohttp import web

BUCKET: Final = "lake"
ACCESS_KEY: Final = "access-of-the-double"
SECRET_KEY: Final = "secret-of-the-double"  # noqa: S105
_CREDENTIAL: Final = re.compile(r"Credential=([^/]+)/[^/]+/([^/]+)/")


class Effect(Enum):
    """What happens to a request."""

    LOST_BEFORE = "the connection ends before the effect"
    LOST_AFTER = "the connection ends after the effect"
    ERROR_AFTER = "an answer 500 after the effect"
    UNAVAILABLE = "an answer 503 before the effect"
    CONFLICT = "an answer 409 ConditionalRequestConflict before the effect"
    REJECTED = "an answer 400 before the effect"
    UNSUPPORTED = "an answer 501 before the effect"
    TRUNCATED = "the body of the answer ends early"
    HELD_BEFORE = "the request is held before the effect, until it is released"
    HELD_AFTER = "the answer is held after the effect, until it is released"


_ANSWERS: Final = {
    Effect.UNAVAILABLE: (503, "SlowDown"),
    Effect.CONFLICT: (409, "ConditionalRequestConflict"),
    Effect.REJECTED: (400, "InvalidRequest"),
    Effect.UNSUPPORTED: (501, "NotImplemented"),
    Effect.ERROR_AFTER: (500, "InternalError"),
}


@dataclass(slots=True)
class Fault:
    """Strikes requests of a method whose key ends so."""

    effect: Effect
    method: str = "PUT"
    key: str = ""
    times: int = 1
    struck: threading.Event = field(default_factory=threading.Event)
    """Set when the fault has struck for the first time."""
    release: threading.Event = field(default_factory=threading.Event)
    """Set by the test, to let a held request go on."""
    meanwhile: Callable[[], object] | None = None
    """Runs at the moment of the fault: before the effect, or after it."""


class S3Double:
    """The server, in a thread of its own."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.buckets = {BUCKET}
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        """Method and key of each request, in order."""
        self.access_keys = {ACCESS_KEY}
        self.heeds_conditions = True
        """False: a server that does not know If-None-Match, and overwrites."""
        self.region = "us-east-1"
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="s3-double")
        self._runner: web.AppRunner | None = None
        self._under_way = 0
        self._idle = threading.Condition()
        self.port = 0

    @property
    def endpoint(self) -> str:
        """Address for clients."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return the variables with which a process uses this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }

    def strike(self, effect: Effect, key: str = "", method: str = "PUT", times: int = 1) -> Fault:
        """Let the next requests of a method fail whose key ends so."""
        fault = Fault(effect, method, key, times)
        self.faults.append(fault)
        return fault

    def settle(self) -> None:
        """Wait until no request is under way, also none whose client has given up."""
        with self._idle:
            while self._under_way:
                self._idle.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fault in self.faults:
            fault.release.set()
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        application = web.Application(client_max_size=1 << 30)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, shutdown_timeout=0, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        with self._idle:
            self._under_way += 1
        try:
            return await self._respond(request)
        finally:
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        # The router decodes the path once more than S3 does.
        raw = request.raw_path.partition("?")[0]
        bucket, _, key = urllib.parse.unquote(raw).lstrip("/").partition("/")
        body = await request.read()
        self.requests.append((request.method, key))
        problem = self._problem(request, bucket)
        if problem is not None:
            return problem
        fault = self._due(request.method, key)
        if fault is None:
            return self._answer(request, key, body)
        return await self._strike(fault, request, lambda: self._answer(request, key, body))

    def _problem(self, request: web.Request, bucket: str) -> web.Response | None:
        """Return the answer to a request that a server refuses, None to any other."""
        found = _CREDENTIAL.search(request.headers.get("Authorization", ""))
        if found is None or found[1] not in self.access_keys:
            return _error(403, "InvalidAccessKeyId")
        if found[2] != self.region:
            return web.Response(status=301)
        if "x-amz-server-side-encryption" in request.headers:
            return _error(400, "InvalidEncryptionAlgorithmError")
        return None if bucket in self.buckets else _error(404, "NoSuchBucket")

    def _due(self, method: str, key: str) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.method == method and key.endswith(fault.key):
                fault.times -= 1
                return fault
        return None

    async def _strike(
        self, fault: Fault, request: web.Request, act: Callable[[], web.Response]
    ) -> web.StreamResponse:
        match fault.effect:
            case Effect.LOST_BEFORE | Effect.HELD_BEFORE:
                await self._interrupt(fault)
                if fault.effect is Effect.LOST_BEFORE:
                    return _hang_up(request)
                return act()
            case Effect.TRUNCATED:
                await self._interrupt(fault)
                return await _truncate(request, act())
            case Effect.LOST_AFTER | Effect.HELD_AFTER | Effect.ERROR_AFTER:
                answer = act()
                await self._interrupt(fault)
                if fault.effect is Effect.LOST_AFTER:
                    return _hang_up(request)
                return answer if fault.effect is Effect.HELD_AFTER else _error(*_ANSWERS[fault.effect])
        await self._interrupt(fault)
        return _error(*_ANSWERS[fault.effect])

    async def _interrupt(self, fault: Fault) -> None:
        """Do what the test wants to happen at this moment, and hold the request if it does."""
        if fault.meanwhile is not None:
            await self._loop.run_in_executor(None, fault.meanwhile)
        fault.struck.set()
        if fault.effect in (Effect.HELD_BEFORE, Effect.HELD_AFTER):
            await self._loop.run_in_executor(None, fault.release.wait)

    def _answer(self, request: web.Request, key: str, body: bytes) -> web.Response:
        """Do what a request asks for. Nothing runs in between, so every request is atomic."""
        query = request.query
        match request.method:
            case "GET" if not key:
                return self._list(query)
            case "GET" | "HEAD":
                return self._get(request, key)
            case "PUT" if "partNumber" in query:
                self._uploads[query["uploadId"]][int(query["partNumber"])] = body
                return web.Response(headers={"ETag": _etag(body)})
            case "PUT":
                return self._put(request, key, body)
            case "POST" if "delete" in query:
                return self._delete_all(body)
            case "POST" if "uploads" in query:
                return self._begin(key)
            case "POST":
                return self._complete(key, query["uploadId"])
            case "DELETE":
                if "uploadId" in query:
                    self._uploads.pop(query["uploadId"], None)
                else:
                    self.objects.pop(key, None)
                return web.Response(status=204)
        return _error(405, "MethodNotAllowed")

    def _put(self, request: web.Request, key: str, body: bytes) -> web.Response:
        if self.heeds_conditions and request.headers.get("If-None-Match") == "*" and key in self.objects:
            return _error(412, "PreconditionFailed")
        source = request.headers.get("x-amz-copy-source")
        if source is None:
            self.objects[key] = body
            return web.Response(headers={"ETag": _etag(body)})
        _, _, from_key = urllib.parse.unquote(source).lstrip("/").partition("/")
        if from_key not in self.objects:
            return _error(404, "NoSuchKey")
        self.objects[key] = self.objects[from_key]
        etag = escape(_etag(self.objects[key]))
        return _xml(f"<CopyObjectResult><ETag>{etag}</ETag></CopyObjectResult>")

    def _get(self, request: web.Request, key: str) -> web.Response:
        content = self.objects.get(key)
        if content is None:
            return _error(404, "NoSuchKey")
        headers = {"ETag": _etag(content), "Last-Modified": "Sat, 01 Jan 2000 00:00:00 GMT"}
        if request.method == "HEAD":
            return web.Response(headers={**headers, "Content-Length": str(len(content))})
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range", ""))
        if asked is None:
            return web.Response(body=content, headers=headers)
        first = int(asked[1]) if asked[1] else max(len(content) - int(asked[2]), 0)
        last = int(asked[2]) + 1 if asked[1] and asked[2] else len(content)
        headers["Content-Range"] = f"bytes {first}-{min(last, len(content)) - 1}/{len(content)}"
        return web.Response(status=206, body=content[first:last], headers=headers)

    def _list(self, query: Mapping[str, str]) -> web.Response:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        start = query.get("continuation-token") or query.get("start-after", "")
        limit = int(query.get("max-keys", "1000"))
        lines, token = _page(sorted(self.objects.items()), prefix, delimiter, start, limit)
        truncated = f"<IsTruncated>{str(bool(token)).lower()}</IsTruncated>"
        following = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        return _xml(f"<ListBucketResult>{truncated}{following}{''.join(lines)}</ListBucketResult>")

    def _delete_all(self, body: bytes) -> web.Response:
        keys = [each.text or "" for each in ElementTree.fromstring(body).iter() if _tag(each) == "Key"]  # noqa: S314
        for key in keys:
            self.objects.pop(key, None)
        deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        return _xml(f"<DeleteResult>{deleted}</DeleteResult>")

    def _begin(self, key: str) -> web.Response:
        upload = f"upload-{len(self._uploads)}"
        self._uploads[upload] = {}
        return _xml(
            f"<InitiateMultipartUploadResult><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
            "</InitiateMultipartUploadResult>"
        )

    def _complete(self, key: str, upload: str) -> web.Response:
        parts = self._uploads.pop(upload, None)
        if parts is None:
            return _error(404, "NoSuchUpload")
        self.objects[key] = b"".join(parts[number] for number in sorted(parts))
        etag = escape(_etag(self.objects[key]))
        return _xml(f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>")


def _page(
    objects: Iterable[tuple[str, bytes]], prefix: str, delimiter: str, start: str, limit: int
) -> tuple[list[str], str]:
    """Return the lines of one page of a listing, and the token of the next one."""
    lines: list[str] = []
    seen: set[str] = set()
    last = ""
    for key, content in objects:
        if not key.startswith(prefix) or key <= start:
            continue
        rest = key[len(prefix) :]
        folder = prefix + rest.partition(delimiter)[0] + delimiter if delimiter and delimiter in rest else ""
        if folder and (folder in seen or folder <= start):
            last = key
            continue
        if len(lines) == limit:
            return lines, last
        last = key
        seen.add(folder)
        if folder:
            lines.append(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>")
        else:
            lines.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>2000-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>{escape(_etag(content))}</ETag><Size>{len(content)}</Size></Contents>"
            )
    return lines, ""


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def _xml(text: str) -> web.Response:
    return web.Response(text=f'<?xml version="1.0" encoding="UTF-8"?>{text}', content_type="application/xml")


def _error(status: int, code: str) -> web.Response:
    answer = _xml(f"<Error><Code>{code}</Code><Message>{code}</Message></Error>")
    answer.set_status(status)
    return answer


def _hang_up(request: web.Request) -> web.Response:
    """End the connection; the answer is not sent any more."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


async def _truncate(request: web.Request, whole: web.Response) -> web.StreamResponse:
    """Send the beginning of a body, and end the connection."""
    body = whole.body if isinstance(whole.body, bytes) else b""
    answer = web.StreamResponse(status=whole.status, headers=whole.headers)
    answer.content_length = len(body)
    await answer.prepare(request)
    await answer.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return answer
