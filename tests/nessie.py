"""Nessie as a process: a REST catalog that changes several tables in one step; tables are in an S3 server."""

import http.client
import re
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from sluicegate.cli.local.errors import JavaError
from sluicegate.cli.local.jars import Java, fetched_jars, find_java
from sluicegate.cli.local.process import LOOPBACK, free_port
from sluicegate.cli.local.servers import EmbeddedServer
from tests.s3proxy import ACCESS_KEY, BUCKET, SECRET_KEY, S3Proxy
from tests.vending import KeyGuard

_MINIMUM_JAVA: Final = 21
_OPTIONS: Final = ("-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def command(properties: Mapping[str, str]) -> list[str]:
    """Return the command of the server. The first call of each user fetches about 245 MB."""
    java = _java()
    (jar,) = fetched_jars("Nessie", Path(__file__).with_name("nessie.jars"))
    return [
        str(java.executable),
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

    def __init__(self, store: S3Proxy | KeyGuard) -> None:
        """Make a server. With a guard before the store, it hands out the guard's keys."""
        super().__init__()
        self._store = store

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
        return command(
            {
                **(vending if isinstance(self._store, KeyGuard) else {}),
                "quarkus.http.host": LOOPBACK,
                "quarkus.http.port": str(self.port),
                "quarkus.management.host": LOOPBACK,
                "quarkus.management.port": str(free_port()),
                "nessie.version.store.type": "IN_MEMORY",
                "nessie.server.authentication.enabled": "false",
                "nessie.catalog.default-warehouse": "warehouse",
                "nessie.catalog.warehouses.warehouse.location": f"s3://{BUCKET}/",
                "nessie.catalog.object-stores.health-check.enabled": "false",
                f"{s3}.endpoint": endpoint,
                f"{s3}.path-style-access": "true",
                f"{s3}.region": "us-east-1",
                f"{s3}.access-key": "urn:nessie-secret:quarkus:store-key",
                "store-key.name": ACCESS_KEY,
                "store-key.secret": SECRET_KEY,
            }
        )

    def _ready(self, pid: int) -> bool:
        try:
            probe = urllib.request.urlopen(f"{self.uri}/v1/config", timeout=5)  # noqa: S310  # time: a probe
            with probe:
                return True
        except (OSError, http.client.HTTPException):
            return False
