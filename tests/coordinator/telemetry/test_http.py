"""The HTTP endpoints say what the service says, with the status that a supervisor acts on."""

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from sluicegate.coordinator.observe.metrics import Metrics
from sluicegate.coordinator.settings.model import CannotServe, HttpSettings
from sluicegate.coordinator.web.http import HealthServer
from tests.tls import Certificates, make_certificates, sign_again


@dataclass
class Service:
    """What the endpoints ask, answered by the test."""

    dead: str | None = None
    missing: list[str] = field(default_factory=list)
    shown: dict[str, Any] = field(default_factory=dict)

    def alive(self) -> str | None:
        return self.dead

    def unready(self) -> list[str]:
        return self.missing

    def status(self) -> dict[str, Any]:
        return self.shown


@dataclass
class Served:
    """A running server and its parts."""

    service: Service
    metrics: Metrics
    url: str

    async def get(self, path: str) -> tuple[int, Any]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    service, metrics = Service(), Metrics()
    async with HealthServer(service, metrics, HttpSettings(port=0)) as server:
        yield Served(service, metrics, f"http://127.0.0.1:{server.port}")


async def test_alive_until_the_service_says_otherwise(served: Served) -> None:
    assert await served.get("/livez") == (200, {"alive": True})
    served.service.dead = "the consumer loop stands still for 31 s"
    assert await served.get("/livez") == (
        503,
        {"alive": False, "reason": "the consumer loop stands still for 31 s"},
    )
    assert (await served.get("/readyz"))[0] == 200


async def test_ready_only_without_any_reason(served: Served) -> None:
    served.service.missing = ["the assignment is not read yet", "Redis is away"]
    assert await served.get("/readyz") == (
        503,
        {"ready": False, "reasons": ["the assignment is not read yet", "Redis is away"]},
    )
    assert (await served.get("/livez"))[0] == 200
    served.service.missing = []
    assert await served.get("/readyz") == (200, {"ready": True, "reasons": []})


async def test_metrics_are_served_as_prometheus_reads_them(served: Served) -> None:
    served.metrics.lag.set(42, "3")
    async with aiohttp.ClientSession() as session, session.get(f"{served.url}/metrics") as answer:
        text = await answer.text()
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'sluicegate_consumer_lag_records{partition="3"} 42.0' in text.splitlines()


async def test_taken_port_is_a_clear_error(served: Served) -> None:
    port = int(served.url.rpartition(":")[2])
    server = HealthServer(Service(), Metrics(), HttpSettings(port=port))
    with pytest.raises(CannotServe, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*http\.port"):
        await server.__aenter__()
    with pytest.raises(RuntimeError):
        _ = server.port


FIRST, SECOND = "first-token-0123456789", "second-token-0123456789"
CLOSED: Final = ("/status", "/metrics", "/page", "/missing")


def bearer(token: str) -> str:
    return f"Bearer {token}"


def basic(token: str, user: str = "somebody") -> str:
    return f"Basic {base64.b64encode(f'{user}:{token}'.encode()).decode()}"


def add_page(app: web.Application) -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="page")

    app.router.add_get("/page", page)


def token_files(folder: Path, *tokens: str) -> list[Path]:
    files = [folder / f"token-{number}" for number in range(len(tokens))]
    for file, token in zip(files, tokens, strict=True):
        file.write_text(f"{token}\n")
    return files


@asynccontextmanager
async def serving(**http: Any) -> AsyncIterator[tuple[HealthServer, str]]:
    settings = HttpSettings.model_validate({"port": 0, **http})
    scheme = "http" if settings.certificate_file is None else "https"
    async with HealthServer(Service(), Metrics(), settings, add_page) as server:
        yield server, f"{scheme}://127.0.0.1:{server.port}"


async def get(url: str, authorization: str | None = None, ca: Path | None = None) -> tuple[int, Any]:
    headers = {} if authorization is None else {"Authorization": authorization}
    context = ssl.create_default_context(cafile=ca) if ca is not None else True
    # A new connection for each request, as the handshake is part of the test.
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(url, headers=headers, ssl=context) as answer,
    ):
        return answer.status, answer.headers.get("WWW-Authenticate")


@pytest.mark.slow
async def test_each_path_but_the_probes_needs_a_token(tmp_path: Path) -> None:
    async with serving(token_files=token_files(tmp_path, FIRST, SECOND)) as (_, url):
        for path in CLOSED:
            assert await get(url + path) == (401, 'Basic realm="sluicegate", charset="UTF-8"')
            for token in (FIRST, SECOND):
                for header in (bearer(token), basic(token), f"bearer {token}", basic(token, "")):
                    assert (await get(url + path, header))[0] == (404 if path == "/missing" else 200)
        for path in ("/livez", "/readyz"):
            assert (await get(url + path))[0] == 200


@pytest.mark.parametrize(
    "header",
    [
        *("", "Bearer", "Bearer ", "Basic", "Basic !", "Basic OnRva2Vu", "Basic YWJj", FIRST, "Digest x"),
        *(bearer(FIRST[:-1]), bearer(FIRST + "x"), bearer(FIRST.upper()), basic(FIRST + "x"), basic("")),
        *(f"Token {FIRST}", basic(FIRST).replace("Basic", "Bearer"), bearer("x" * 5000)),
    ],
)
async def test_nothing_else_is_a_token(header: str, tmp_path: Path) -> None:
    async with serving(token_files=token_files(tmp_path, FIRST)) as (_, url):
        assert (await get(f"{url}/status", header))[0] == 401
        assert (await get(f"{url}/status?token={FIRST}", header))[0] == 401


async def test_probes_can_be_closed_too(tmp_path: Path) -> None:
    async with serving(token_files=token_files(tmp_path, FIRST), open_probes=False) as (_, url):
        for path in ("/livez", "/readyz"):
            assert (await get(url + path))[0] == 401
            assert (await get(url + path, bearer(FIRST)))[0] == 200


async def test_a_token_is_changed_while_the_server_runs(tmp_path: Path) -> None:
    async with serving(token_files=token_files(tmp_path, FIRST)) as (server, url):
        (file,) = token_files(tmp_path, SECOND)
        assert (await get(f"{url}/status", bearer(FIRST)))[0] == 200
        await server.access.renew()
        assert (await get(f"{url}/status", bearer(FIRST)))[0] == 401
        assert (await get(f"{url}/status", bearer(SECOND)))[0] == 200
        for content in ("", "short"):
            file.write_text(content)
            with capture_logs() as logged:
                await server.access.renew()
            assert "those before stay in force" in logged[0]["event"]
            assert (await get(f"{url}/status", bearer(SECOND)))[0] == 200
        assert "make one: openssl rand -hex 32" in logged[0]["problem"]


NO_TOKENS: Final = {
    "two lines": f"{FIRST}\n{SECOND}\n",
    "blank": "second token 0123456789",
    "tab": "second\ttoken-0123456789",
    "null": "second\x00token-0123456789",
    "byte order mark": f"\ufeff{SECOND}\n",
}


@pytest.mark.parametrize("content", NO_TOKENS.values(), ids=NO_TOKENS)
async def test_a_file_that_is_not_one_token_is_refused(tmp_path: Path, content: str) -> None:
    """At the start with an error; at SIGHUP the token before stays in force. The advice is taken then."""
    advised = "write one token per file; list several files"
    (file,) = token_files(tmp_path, FIRST)
    async with serving(token_files=[file]) as (server, url):
        file.write_text(content)
        with capture_logs() as logged:
            await server.access.renew()
        assert "those before stay in force" in logged[0]["event"]
        assert f"{file} has a line break, a blank or an invisible" in logged[0]["problem"]
        assert advised in logged[0]["problem"]
        assert (await get(f"{url}/status", bearer(FIRST)))[0] == 200
        with pytest.raises(CannotServe, match=advised):
            HealthServer(Service(), Metrics(), HttpSettings.model_validate({"token_files": [file]}))
        await server.access.renew(token_files(tmp_path, FIRST, SECOND))
        for token in (FIRST, SECOND):
            assert (await get(f"{url}/status", bearer(token)))[0] == 200


@pytest.mark.slow
async def test_a_certificate_is_changed_while_the_server_runs(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    expired = sign_again(files, days=0)
    given = {"certificate_file": files.server, "key_file": files.server_key}
    async with serving(**given, token_files=token_files(tmp_path, FIRST)) as (server, url):
        assert (await get(f"{url}/livez", ca=files.ca))[0] == 200
        assert (await get(f"{url}/status", ca=files.ca))[0] == 401
        assert (await get(f"{url}/status", bearer(FIRST), ca=files.ca))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await get(f"{url}/livez")
        with pytest.raises(aiohttp.ClientError):
            await get(f"{url}/livez".replace("https", "http"))
        good = files.server.read_bytes()
        files.server.write_bytes(expired)
        await server.access.renew()
        with pytest.raises(aiohttp.ClientConnectorCertificateError, match="expired"):
            await get(f"{url}/livez", ca=files.ca)
        files.server.write_bytes(good)
        await server.access.renew()
        assert (await get(f"{url}/livez", ca=files.ca))[0] == 200
        _write_a_wrong_pair(files)
        with capture_logs() as logged:
            await server.access.renew()
        assert "give a PEM certificate and its key without a password" in logged[0]["problem"]
        assert (await get(f"{url}/livez", ca=files.ca))[0] == 200


def _write_a_wrong_pair(files: Certificates) -> None:
    """Put the certificate of the client beside the key of the server."""
    files.server.write_bytes(files.client.read_bytes())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"token_files": ["/nowhere/token"]}, "/nowhere/token cannot be read on this machine"),
        ({"certificate_file": __file__}, "give a PEM certificate and its key without a password"),
    ],
)
def test_unusable_files_are_an_error_at_the_start(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(CannotServe, match=told):
        HealthServer(Service(), Metrics(), HttpSettings.model_validate(wrong))


def test_a_key_needs_a_certificate() -> None:
    with pytest.raises(ValueError, match="set both or none"):
        HttpSettings.model_validate({"key_file": __file__})
