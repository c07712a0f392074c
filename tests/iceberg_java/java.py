"""Iceberg's own Java library as processes: a REST catalog, and a judge that reads and changes tables."""

import http.client
import json
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from sluicegate.cli.local.jars import fetched_jars, find_java
from sluicegate.cli.local.process import LOOPBACK
from sluicegate.cli.local.servers import EmbeddedServer

_PROGRAM: Final = Path(__file__).with_name("Iceberg.java")
_OPTIONS: Final = (
    *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)


def command(*arguments: str) -> list[str]:
    """Return the command of the program. The first call of each user fetches about 140 MB."""
    java = find_java()
    jars = fetched_jars("Apache Iceberg", _PROGRAM.with_name("iceberg.jars"))
    class_path = ":".join(map(str, jars))
    return [str(java.executable), *_OPTIONS, "-cp", class_path, str(_PROGRAM), *arguments]


class RestCatalogServer(EmbeddedServer):
    """A REST catalog over a database in its data directory.

    With variables of an S3 server, tables can be there, too.
    """

    name: ClassVar[str] = "Iceberg's REST catalog"
    start_seconds: ClassVar[float] = 300.0
    stop_seconds: ClassVar[float] = 30.0
    poll_seconds: ClassVar[float] = 0.05

    def __init__(self, store: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._io = s3_properties(store) if store is not None else {}

    @property
    def uri(self) -> str:
        """Address for clients."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def database(self) -> Path:
        """The database behind the catalog, an SQL catalog of the name `default`."""
        return self.data_dir / "catalog.db"

    def _prepare(self) -> Sequence[str]:
        warehouse = f"file://{self.data_dir}/warehouse"
        uri = f"jdbc:sqlite:{self.database}"
        return command("serve", str(self.port), uri, warehouse, json.dumps(self._io))

    def _ready(self, pid: int) -> bool:
        try:
            probe = urllib.request.urlopen(f"{self.uri}/v1/config", timeout=5)  # noqa: S310  # time: a probe
            with probe:
                return True
        except (OSError, http.client.HTTPException):
            return False


class JavaError(Exception):
    """The library raised an error, which is the text."""


class IcebergJava:
    """The library in a process, for one table after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            command("answer"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def read(
        self,
        metadata: str,
        columns: Sequence[str],
        where: Mapping[str, Any] | None = None,
        store: Mapping[str, str] | None = None,
    ) -> list[list[str | None]]:
        """Return the rows of a metadata file as texts, in the order in which they are found.

        `store`: variables of the S3 server that has the file.
        """
        io = {"io": s3_properties(store)} if store is not None else {}
        rows: list[list[str | None]] = self._ask(
            "read", where, metadata=metadata, columns=list(columns), **io
        )
        return rows

    def files(self, metadata: str, where: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the live data files, as a scan with this filter plans them."""
        files: list[dict[str, Any]] = self._ask("files", where, metadata=metadata)
        return files

    def change(self, change: str, catalog: Mapping[str, str], table: str, /, **more: Any) -> None:
        """Change a table as a foreign writer, or as its maintenance."""
        self._ask(change, None, catalog=dict(catalog), table=table, **more)

    def _ask(self, op: str, where: Mapping[str, Any] | None, /, **more: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"op": op, **more, **({"filter": where} if where is not None else {})}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line or '{"error": "the process has ended"}')
        if isinstance(answer, dict) and "error" in answer:
            raise JavaError(answer["error"])
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:
            self._process.kill()


def where(kind: str, column: str, value: Any = None) -> dict[str, Any]:
    """Return a filter as the library reads it: `eq`, `lt`, `is-null` and so on."""
    expression: dict[str, Any] = {"type": kind, "term": column}
    return expression if value is None else {**expression, "value": value}


def sql_catalog(database: Path | str, warehouse: str) -> dict[str, str]:
    """Return the library's properties for the SQL catalog in a database file."""
    uri = f"jdbc:sqlite:{database}"
    return {"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog", "uri": uri, "warehouse": warehouse}


def s3_properties(store: Mapping[str, str]) -> dict[str, str]:
    """Return the library's properties for an S3 server whose variables these are."""
    return {
        "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
        "s3.endpoint": store["AWS_ENDPOINT_URL"],
        "s3.access-key-id": store["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": store["AWS_SECRET_ACCESS_KEY"],
        "s3.path-style-access": "true",
        "client.region": store["AWS_REGION"],
        "http-client.type": "urlconnection",
    }


@contextmanager
def rest_catalog(store: Mapping[str, str] | None = None) -> Iterator[RestCatalogServer]:
    """Give a server for the whole run. `store`: variables of an S3 server that may have tables."""
    with RestCatalogServer(store) as server:
        yield server
