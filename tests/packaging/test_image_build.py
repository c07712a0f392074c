"""The commands that build the image make an environment that runs. A folder replaces the container."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.catalog.glue import GlueCatalog as GlueLibrary

from tests.containers.compose import EXAMPLES
from tests.containers.test_compose import LOADS
from tests.doubles.glue import options_of
from tests.integration.waiting import exit_status, wait_until
from tests.packaging.environments import LOCK, UV, Environment, new_environment, run
from tests.repository.test_layout import ROOT
from tests.repository.test_version import VERSION

pytestmark = pytest.mark.long

STAGE: Final = "/opt/sluicegate"
ORDERS: Final = pa.schema([("id", pa.int64())])
WRITE: Final = """\
import json
import sys

import pyarrow as pa

from sluicegate.writer_hooks import RegionDriver

with RegionDriver(json.loads(sys.argv[1])) as driver:
    checkpoint = driver.begin()
    result = checkpoint.write("w0", pa.table({"id": [7]}))
    driver.complete(checkpoint, [result], source_offsets={"next": 1})
    print(driver.await_commit(checkpoint).source_offsets)
"""
"""A writer without Spark, as `docs/writers/python.md` has it."""


def commands() -> list[str]:
    """Return the shell commands of the first stage of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    first = text.split("\nFROM ")[1]
    return [re.sub(r"--mount=\S+ +", "", each) for each in re.findall("^RUN (.*)$", first, re.MULTILINE)]


def copy_context(folder: Path) -> None:
    """Copy the files that `.dockerignore` lets in."""
    kept = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *kept]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in listed:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Give the environment that the commands make."""
    folder = tmp_path_factory.mktemp("image")
    tools = new_environment(folder / "tools", seed=True)
    source, made = folder / "source", Environment(folder / "image")
    source.mkdir()
    copy_context(source)
    path = f"{tools.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    found = commands()
    assert len(found) == 3
    for each in found:
        run("env", f"PATH={path}", "sh", "-ec", each.replace(STAGE, str(made.folder)), cwd=source)
    locked = re.search(r"^uv==(\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    assert locked is not None
    assert tools.call("uv", "--version").split()[1] == locked[1]
    return made


def test_the_environment_of_the_image_loads_all_that_it_brings(image: Environment) -> None:
    assert image.call("sluicegate", "--version") == f"sluicegate, version {VERSION}\n"
    assert image.call("python", LOADS).endswith(" loaded\n")
    assert not list(image.packages.glob("pyspark*"))


def test_all_packages_of_the_image_have_wheels_for_arm(tmp_path: Path) -> None:
    (line,) = [each for each in commands() if "--extra" in each]
    arguments = line[line.index("--no-build") :].split()
    platform = ["--python-version", "3.12", "--python-platform", "aarch64-manylinux_2_28"]
    run(UV, "pip", "install", "--dry-run", "--target", tmp_path, *platform, *arguments, cwd=ROOT)


class Receiver:
    """A server that takes lineage and traces."""

    def __init__(self) -> None:
        self.paths: Counter[str] = Counter()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                receiver.paths[self.path] += 1
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    thread = Thread(target=found.server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        thread.join()
        found.server.server_close()


def stream(name: str, format: str, table: Path, lineage: str, **options: str) -> str:
    """Return the sections of a stream."""
    return f"""
[streams.{name}]
format = "{format}"
table = "{table}"
[streams.{name}.listeners.lineage]
type = "openlineage"
url = "{lineage}"
[streams.{name}.options]
{"".join(f"{key} = {json.dumps(value)}{chr(10)}" for key, value in options.items())}"""


def test_the_image_commits_in_each_format_with_lineage_and_traces(
    image: Environment,
    kafka_bootstrap: str,
    postgres: str,
    glue: str,
    receiver: Receiver,
    unique: str,
    tmp_path: Path,
) -> None:
    warehouse, settings = tmp_path / f"{unique}.db", tmp_path / "sluicegate.toml"
    tables = {"paimon": warehouse / "p", "delta": warehouse / "d", "iceberg": warehouse / "i"}
    uri = {"iceberg": {"uri": postgres}}
    of_glue = {"type": "glue", "identifier": f"{unique}.g", **options_of(glue)}
    library = GlueLibrary("default", **options_of(glue), warehouse=tmp_path.as_uri())
    library.create_namespace(unique)
    library.create_table(f"{unique}.g", ORDERS, location=(warehouse / "g").as_uri())
    settings.write_text(
        f"""[kafka]
bootstrap_servers = "{kafka_bootstrap}"
group_id = "{unique}"
topic_prefix = "{unique}"
partitions = 3
[http]
port = 0
"""
        + "".join(
            stream(name, name, each, receiver.url, **uri.get(name, {})) for name, each in tables.items()
        )
        + stream("glue", "iceberg", warehouse / "g", receiver.url, **of_glue),
        encoding="utf-8",
    )
    image.call("sluicegate", "topics", "create", "--config", settings)
    log = tmp_path / "log"
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SLUICEGATE"))
    }
    program = [str(image.folder / "bin" / "sluicegate"), "run", "--config", str(settings)]
    with log.open("ab") as output:
        traced = {**kept, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        process = subprocess.Popen(program, env=traced, stdout=output, stderr=output)
    try:
        for name, table in tables.items():
            words = [f"{key}={value}" for key, value in uri.get(name, {}).items()]
            more = [word for each in words for word in ("--option", each)]
            job = [kafka_bootstrap, name, str(EXAMPLES / "orders.csv"), str(table), "--format", name, *more]
            told = image.call("python", EXAMPLES / "own_table.py", *job, "--topic-prefix", unique)
            assert told.splitlines()[-1] == "committed: 3 new rows", name
            read = image.call("python", EXAMPLES / "read_rows.py", table, *uri.get(name, {}).values())
            assert read.splitlines()[-1] == "3 rows", name
        # A plain writer, to the catalog in Glue.
        assert (
            image.call(
                "python",
                "-c",
                WRITE,
                json.dumps(
                    {
                        "stream": "glue",
                        "region": "glue",
                        "table": str(warehouse / "g"),
                        "format": "iceberg",
                        "kafka.bootstrap.servers": kafka_bootstrap,
                        "topic.prefix": unique,
                        **{f"table.{key}": value for key, value in of_glue.items()},
                    }
                ),
            )
            == "{'next': 1}\n"
        )
        assert library.load_table(f"{unique}.g").scan().to_arrow()["id"].to_pylist() == [7]
        # Of each stream: the start and the end of one run.
        wait_until(lambda: receiver.paths["/api/v1/lineage"], lambda count: count >= 8, by=process, log=log)
        process.send_signal(signal.SIGTERM)
        assert exit_status(process, log) == 0, log.read_text(encoding="utf-8")
    finally:
        process.kill()
        process.wait()
    # What is left of the traces is exported at the end.
    assert receiver.paths["/v1/traces"] >= 1
    assert {*receiver.paths} == {"/api/v1/lineage", "/v1/traces"}
