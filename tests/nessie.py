"""Nessie as a process: a REST catalog that changes several tables in one step; tables are in an S3 server."""

import http.client
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar, Final

from sluicegate.cli.local.errors import JavaError
from sluicegate.cli.local.jars import Java, fetched_jars, find_java
from sluicegate.cli.local.process import LOOPBACK, free_port
from sluicegate.cli.local.servers import EmbeddedServer
from tests.oidc import AUDIENCE, CLIENT, Provider
from tests.s3proxy import ACCESS_KEY, BUCKET, SECRET_KEY, S3Proxy
from tests.vending import KeyGuard

_MINIMUM_JAVA: Final = 21
_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_MEMORY: Final = 320


def command(properties: Mapping[str, str], memory: int = _MEMORY) -> list[str]:
    """Return the command of the server. The first call of each user fetches about 245 MB.

    `memory`: MiB of its heap.
    """
    java = _java()
    (jar,) = fetched_jars("Nessie", Path(__file__).with_name("nessie.jars"))
    return [
        str(java.executable),
        f"-Xmx{memory}m",
        *_OPTIONS,
        *(f"-D{key}={value}" for key, value in properties.items()),
        "-jar",
        str(jar),
    ]


def _java() -> Java:
    """Return a Java that runs Nessie, which needs a newer one than Kafka: that of the user, or any installed.

    Raises JavaError if there is none.
    """
    found = find_java()
    if found.version >= _MINIMUM_JAVA:
        return found
    for executable in sorted(Path("/usr/lib/jvm").glob("*/bin/java")):
        done = subprocess.run([str(executable), "-version"], capture_output=True, text=True, check=False)
        shown = re.search(r'version "(\d+)', done.stderr + done.stdout)
        if shown is not None and int(shown[1]) >= _MINIMUM_JAVA:
            return Java(executable, int(shown[1]), done.stderr)
    raise JavaError(f"Nessie needs Java {_MINIMUM_JAVA} or later; install it, or set JAVA_HOME to one")


class Nessie(EmbeddedServer):
    """One server, whose branch `main` is in memory."""

    name: ClassVar[str] = "Nessie"
    start_seconds: ClassVar[float] = 300.0
    stop_seconds: ClassVar[float] = 30.0
    poll_seconds: ClassVar[float] = 0.05

    def __init__(
        self, store: S3Proxy | KeyGuard, issuer: Provider | None = None, memory: int = _MEMORY
    ) -> None:
        """Make a server. With a guard before the store, it hands out the guard's keys.

        With an issuer, it lets in nobody without a token of it. `memory`: MiB of its heap.
        """
        super().__init__()
        self._store = store
        self._issuer = issuer
        self._memory = memory

    @property
    def uri(self) -> str:
        """Address for clients."""
        return f"http://{LOOPBACK}:{self.port}/iceberg"

    def _prepare(self) -> Sequence[str]:
        s3, endpoint = "nessie.catalog.service.s3.default-options", self._store.endpoint
        vending = {
            f"{s3}.client-iam.enabled": "true",
            f"{s3}.client-iam.assume-role": "arn:aws:iam::123456789012:role/lake",
            f"{s3}.sts-endpoint": endpoint,
            f"{s3}.request-signing-enabled": "false",
        }
        if isinstance(self._store, KeyGuard):
            # It refuses keys that end before the session for which it asks.
            vending[f"{s3}.client-iam.session-duration"] = f"PT{int(self._store.life)}S"
        return command(
            {
                **(vending if isinstance(self._store, KeyGuard) else {}),
                **self._authentication(),
                "quarkus.http.host": LOOPBACK,
                "quarkus.http.port": str(self.port),
                "quarkus.management.host": LOOPBACK,
                "quarkus.management.port": str(free_port()),
                "nessie.version.store.type": "IN_MEMORY",
                "nessie.catalog.default-warehouse": "warehouse",
                "nessie.catalog.warehouses.warehouse.location": f"s3://{BUCKET}/",
                "nessie.catalog.object-stores.health-check.enabled": "false",
                f"{s3}.endpoint": endpoint,
                f"{s3}.path-style-access": "true",
                f"{s3}.region": "us-east-1",
                f"{s3}.access-key": "urn:nessie-secret:quarkus:store-key",
                "store-key.name": ACCESS_KEY,
                "store-key.secret": SECRET_KEY,
            },
            self._memory,
        )

    def _authentication(self) -> dict[str, str]:
        if self._issuer is None:
            return {"nessie.server.authentication.enabled": "false"}
        return {
            "nessie.server.authentication.enabled": "true",
            "quarkus.oidc.tenant-enabled": "true",
            "quarkus.oidc.auth-server-url": self._issuer.url,
            "quarkus.oidc.discovery-enabled": "false",
            "quarkus.oidc.jwks-path": "keys",
            "quarkus.oidc.client-id": CLIENT,
            "quarkus.oidc.token.issuer": self._issuer.url,
            "quarkus.oidc.token.audience": AUDIENCE,
        }

    def _ready(self, pid: int) -> bool:
        try:
            probe = urllib.request.urlopen(f"{self.uri}/v1/config", timeout=5)  # noqa: S310  # time: a probe
            with probe:
                return True
        except urllib.error.HTTPError as answer:
            answer.close()
            return answer.code == HTTPStatus.UNAUTHORIZED
        except (OSError, http.client.HTTPException):
            return False
