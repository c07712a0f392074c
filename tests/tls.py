"""Certificates of a test's own, and a TLS front for a server whose build has none."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KEY_WORD: Final = "word-of-the-client-key"

_EXTENSIONS: Final = """\
[leaf]
basicConstraints = CA:FALSE
subjectAltName = IP:127.0.0.1
extendedKeyUsage = serverAuth,clientAuth
keyUsage = critical,digitalSignature,keyEncipherment
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""
# Python 3.13 refuses an authority without it.
_AUTHORITY: Final = ("-addext", "keyUsage = critical,keyCertSign,cRLSign")


@dataclass(frozen=True)
class Certificates:
    """PEM files: an authority, a server's pair, and a client's with an encrypted key."""

    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path

    @property
    def server_store(self) -> Path:
        """Key and certificate in one file, as Kafka's PEM key stores are."""
        store = self.server.with_suffix(".store.pem")
        store.write_text(self.server_key.read_text() + self.server.read_text())
        return store


def make_certificates(folder: Path) -> Certificates:
    """Make an authority and what it signs; valid for 127.0.0.1 and two days."""
    extensions = folder / "extensions"
    extensions.write_text(_EXTENSIONS)
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority"),
        *("-keyout", str(ca_key), "-out", str(ca), *_AUTHORITY),
    )
    found = []
    for name in ("server", "client"):
        key, request, certificate = (folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
        word = ("-nodes",) if name == "server" else ("-passout", f"pass:{KEY_WORD}")
        _openssl(
            *("req", "-new", "-newkey", "rsa:2048", "-subj", f"/CN={name}", *word),
            *("-keyout", str(key), "-out", str(request)),
        )
        _openssl(
            *("x509", "-req", "-days", "2", "-in", str(request), "-CA", str(ca), "-CAkey", str(ca_key)),
            *(
                "-CAcreateserial",
                "-extfile",
                str(extensions),
                "-extensions",
                "leaf",
                "-out",
                str(certificate),
            ),
        )
        found += [certificate, key]
    return Certificates(ca, *found)


def sign_again(files: Certificates, days: int) -> bytes:
    """Return another certificate for the server's key, which is valid for so many days."""
    folder = files.ca.parent
    made = folder / "again.pem"
    _openssl(
        *("x509", "-req", "-days", str(days), "-in", str(folder / "server.csr"), "-CA", str(files.ca)),
        *("-CAkey", str(folder / "ca.key"), "-CAcreateserial", "-extfile", str(folder / "extensions")),
        *("-extensions", "leaf", "-out", str(made)),
    )
    return made.read_bytes()


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@asynccontextmanager
async def tls_front(certificates: Certificates, port: int) -> AsyncIterator[int]:
    """Take TLS connections of clients with a certificate, and pass them on; gives the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.ca)
    context.load_cert_chain(certificates.server, certificates.server_key)
    context.verify_mode = ssl.CERT_REQUIRED
    tasks: set[asyncio.Task[None]] = set()

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                while data := await source.read(65536):
                    target.write(data)
                    await target.drain()
            target.close()
        except asyncio.CancelledError:
            target.transport.abort()
            raise

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        for each in (pump(reader, back), pump(there, writer)):
            task = asyncio.create_task(each)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
