"""Emulators of the stores of Azure and Google as processes: Azurite, and fake-gcs-server with a front."""

import http.client
import itertools
import json
import os
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, Final, Protocol
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

import pytest
from pyarrow.fs import AzureFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from sluicegate.cli.local.jars import cached_directory
from sluicegate.cli.local.process import LOOPBACK
from sluicegate.cli.local.servers import EmbeddedServer
from tests.deploy.tools import of_the_system

AZURITE: Final = "3.37.0"
_AZURITE_ON: Final = "2026-11-01"
"""Its dependencies are those of this day."""
_NODE: Final = "Node.js 20 or later"
FAKE_GCS: Final = "1.56.1"
BUCKET: Final = "lake"
ACCOUNT: Final = "devstoreaccount1"
# The key of that account is a part of Azurite's documentation, and the same everywhere.
_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_ADDRESS: Final = "azurite.address"
_SECONDS: Final = 60.0


class Emulator(Protocol):
    """A store with one bucket. Its address may be that of a proxy before it."""

    uri: str
    """Location of the bucket."""

    @property
    def port(self) -> int: ...

    def environment(self, port: int) -> dict[str, str]:
        """Return the variables with which a process uses the store behind a port."""
        ...

    def access(self) -> dict[str, str]:
        """Return the properties with which pyiceberg reads and writes its objects."""
        ...


class Azurite(EmbeddedServer):
    """The emulator of Azure's Blob storage, by Microsoft, with one container in memory."""

    name: ClassVar[str] = "Azurite"
    ready_text: ClassVar[str] = "successfully listens on"
    start_seconds: ClassVar[float] = 300.0
    stop_seconds: ClassVar[float] = 10.0
    poll_seconds: ClassVar[float] = 0.02
    uri = f"abfss://{BUCKET}@{ACCOUNT}.dfs.core.windows.net"

    def __init__(self) -> None:
        super().__init__()
        package = cached_directory(f"azurite-{AZURITE}", _install) / "node_modules" / "azurite"
        self._program = (of_the_system("node", _NODE), str(package / "dist" / "src" / "blob" / "main.js"))

    def _prepare(self) -> Sequence[str]:
        return [
            *(*self._program, "--blobHost", LOOPBACK),
            *("--blobPort", str(self.port), "--inMemoryPersistence"),
            # The version of the protocol that a client asks for may be newer.
            *("--silent", "--disableTelemetry", "--skipApiVersionCheck"),
        ]

    def make_bucket(self) -> None:
        """Make the container."""
        _file_system(f"{LOOPBACK}:{self.port}").create_dir(BUCKET)

    def environment(self, port: int) -> dict[str, str]:
        """Return the variables with which a process uses this store."""
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://{LOOPBACK}:{port}",
        }

    def access(self) -> dict[str, str]:
        """Return the properties with which pyiceberg reads this store."""
        return {"py-io-impl": "tests.emulators.AzureFileIO", _ADDRESS: f"{LOOPBACK}:{self.port}"}


def _file_system(address: str) -> AzureFileSystem:
    return AzureFileSystem(
        account_name=ACCOUNT,
        account_key=_KEY,
        blob_storage_authority=address,
        blob_storage_scheme="http",
        dfs_storage_authority=address,
        dfs_storage_scheme="http",
    )


class AzureFileIO(PyArrowFileIO):
    """Access of pyiceberg to Azurite. Its own takes the account for a part of the container."""

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        scheme, netloc, path = PyArrowFileIO.parse_location(location, properties)
        return scheme, netloc, path.replace(netloc, netloc.partition("@")[0], 1)

    def _initialize_azure_fs(self) -> AzureFileSystem:
        return _file_system(self.properties[_ADDRESS])


def _install(folder: Path) -> None:
    npm = of_the_system("npm", _NODE)
    options = ("--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error")
    command = [
        npm,
        "install",
        f"--prefix={folder}",
        f"--before={_AZURITE_ON}",
        *options,
        f"azurite@{AZURITE}",
    ]
    subprocess.run(command, check=True)


class FakeGcs(EmbeddedServer):
    """fake-gcs-server, an emulator of Google Cloud Storage, with its objects in memory."""

    name: ClassVar[str] = "fake-gcs-server"
    ready_text: ClassVar[str] = "server started"
    start_seconds: ClassVar[float] = 300.0
    stop_seconds: ClassVar[float] = 10.0
    poll_seconds: ClassVar[float] = 0.02

    def __init__(self) -> None:
        super().__init__()
        self._program = cached_directory(f"fake-gcs-server-{FAKE_GCS}", _build) / "fake-gcs-server"

    def _prepare(self) -> Sequence[str]:
        return [
            *(str(self._program), "-backend", "memory", "-scheme", "http", "-host", LOOPBACK),
            *("-port", str(self.port), "-public-host", LOOPBACK),
        ]


def _build(folder: Path) -> None:
    go = of_the_system("go", "Go 1.26 or later")
    module = f"github.com/fsouza/fake-gcs-server@v{FAKE_GCS}"
    subprocess.run([go, "install", module], env=os.environ | {"GOBIN": str(folder)}, check=True)


class GoogleFront:
    """Front that gives fake-gcs-server the writes of the XML interface, which clients in Rust send.

    The server has them in its JSON interface alone, conditions included. So the conditions are the server's.
    """

    uri = f"gs://{BUCKET}"

    def __init__(self, server: FakeGcs) -> None:
        self._server = server
        self._uploads: dict[str, dict[int, bytes]] = defaultdict(dict)
        self._numbers = itertools.count()
        self._front = ThreadingHTTPServer((LOOPBACK, 0), _handler(self))
        self._front.daemon_threads = True
        self._thread = threading.Thread(target=self._front.serve_forever, args=(0.01,), daemon=True)

    @property
    def port(self) -> int:
        """Port of the front."""
        return int(self._front.server_address[1])

    def environment(self, port: int) -> dict[str, str]:
        """Return the variables with which a process uses this store."""
        key = {"gcs_base_url": f"http://{LOOPBACK}:{port}", "disable_oauth": True}
        empty = {"client_email": "", "private_key": "", "private_key_id": ""}
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps({**key, **empty}), "GOOGLE_ALLOW_HTTP": "true"}

    def access(self) -> dict[str, str]:
        """Return the properties with which pyiceberg uses this store, by the JSON interface."""
        return {
            "gcs.service.host": f"http://{LOOPBACK}:{self._server.port}",
            "gcs.oauth2.token": "none",
            "gcs.oauth2.token-expires-at": "4102444800000",
        }

    def start(self) -> None:
        """Make the bucket, and serve."""
        body = json.dumps({"name": BUCKET}).encode()
        status, _, _ = self._ask(
            "POST", "/storage/v1/b?project=test", body, {"Content-Type": "application/json"}
        )
        assert status == 200
        self._thread.start()

    def stop(self) -> None:
        """Serve no more."""
        self._front.shutdown()
        self._front.server_close()
        self._thread.join()

    def answer(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the answer to a request."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        name = unquote(parts.path).removeprefix(f"/{BUCKET}/")
        generation = headers.get("x-goog-if-generation-match")
        match method:
            case "PUT" if "uploadId" in query:
                self._uploads[query["uploadId"]][int(query["partNumber"])] = body
                return 200, {"ETag": f'"{query["partNumber"]}"'}, b""
            case "PUT" if source := headers.get("x-goog-copy-source"):
                return self._copy(unquote(source).lstrip("/").removeprefix(f"{BUCKET}/"), name)
            case "PUT":
                return self._put(name, body, generation)
            case "POST" if "uploads" in query:
                upload = f"<UploadId>{next(self._numbers)}</UploadId>"
                return (
                    200,
                    {},
                    f"<InitiateMultipartUploadResult>{upload}</InitiateMultipartUploadResult>".encode(),
                )
            case "POST":
                pieces = self._uploads.pop(query["uploadId"])
                whole = b"".join(pieces[number] for number in sorted(pieces))
                status, found, _ = self._put(name, whole, generation)
                tag = f"<ETag>{found.get('ETag', '')}</ETag>"
                return (
                    status,
                    found,
                    f"<CompleteMultipartUploadResult>{tag}</CompleteMultipartUploadResult>".encode(),
                )
            case "DELETE" if "uploadId" in query:
                self._uploads.pop(query["uploadId"], None)
                return 204, {}, b""
        return self._ask(
            method, target, body, {each: text for each, text in headers.items() if each == "range"}
        )

    def _put(self, name: str, content: bytes, generation: str | None) -> tuple[int, dict[str, str], bytes]:
        query = {"uploadType": "media", "name": name}
        if generation is not None:
            query["ifGenerationMatch"] = generation
        target = f"/upload/storage/v1/b/{BUCKET}/o?{urlencode(query, quote_via=quote)}"
        status, headers, body = self._ask(
            "POST", target, content, {"Content-Type": "application/octet-stream"}
        )
        if status != 200:
            return status, headers, body
        made = json.loads(body)
        return 200, {"ETag": f'"{made["etag"]}"', "x-goog-generation": str(made["generation"])}, b""

    def _copy(self, source: str, name: str) -> tuple[int, dict[str, str], bytes]:
        one, other = (f"b/{BUCKET}/o/{quote(each, safe='')}" for each in (source, name))
        return self._ask("POST", f"/storage/v1/{one}/copyTo/{other}", b"", {})

    def _ask(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(LOOPBACK, self._server.port, timeout=_SECONDS)
        try:
            connection.request(method, target, body or None, {**headers, "Content-Length": str(len(body))})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()


def _handler(front: GoogleFront) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, content = front.answer(
                self.command, self.path, {name.lower(): text for name, text in self.headers.items()}, body
            )
            self.send_response_only(status)
            length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
            for name, text in headers.items():
                if name not in ("Content-Length", "Transfer-Encoding", "Connection"):
                    self.send_header(name, text)
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = serve

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    return Handler


EMULATORS: Final = tuple(
    pytest.param(name, marks=(pytest.mark.emulator, pytest.mark.matrix))
    for name in ("emulator-azure", "emulator-google")
)
"""Names of the emulators, as parameters of fixtures."""
_FIXTURES: Final = {"emulator-azure": "azurite", "emulator-google": "fake_gcs"}


def emulator(request: pytest.FixtureRequest, name: str) -> Emulator:
    """Return an emulator, and put its variables into the environment."""
    store: Emulator = request.getfixturevalue(_FIXTURES[name])
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for variable, value in store.environment(store.port).items():
        monkeypatch.setenv(variable, value)
    return store


@contextmanager
def azure_store() -> Iterator[Emulator]:
    """Give an emulator of Azure's storage."""
    with Azurite() as server:
        server.make_bucket()
        yield server


@contextmanager
def google_store() -> Iterator[Emulator]:
    """Give an emulator of Google's storage."""
    with FakeGcs() as server:
        front = GoogleFront(server)
        front.start()
        try:
            yield front
        finally:
            front.stop()
