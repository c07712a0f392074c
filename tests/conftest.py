"""Fixtures for every test: real servers, names that no other test uses, and the flag of the golden cases."""

import json
import os
import platform
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from sluicegate.cli.local.errors import JavaError
from sluicegate.cli.local.servers import EmbeddedHdfs, EmbeddedKafka, EmbeddedValkey
from sluicegate.lakes import storage_objects
from tests.doubles.glue import ENVIRONMENT, glue_server
from tests.doubles.s3 import S3Double
from tests.emulators import Emulator, azure_store, google_store
from tests.iceberg_java.java import IcebergJava, RestCatalogServer, rest_catalog
from tests.nessie import Nessie
from tests.postgres import postgres_server
from tests.s3proxy import S3Proxy, s3_server
from tests.servers import choose_release, kafka_server, redis_server
from tests.spark_judge.judge import REASON, SKIPPED, SparkJudge

# A slow machine is no defect: no example has a time limit, and none may take too long to be drawn.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

WITH_SERVERS: Final = frozenset(
    {
        "emulator",
        "iceberg_java",
        "iceberg_rest",
        "browser",
        "iceberg_rest_of_s3",
        "kafka",
        "kafka_bootstrap",
        "hdfs",
        "nessie",
        "own_hdfs",
        "own_kafka",
        "own_valkey",
        "postgres",
        "redis",
        "redis_url",
        "s3",
        "s3proxy",
        "spark",
        "spark_judge",
    }
)
"""Fixtures and marks that start a server, a Spark session or a process of the product."""

TESTS: Final = Path(__file__).parent
TOGETHER: Final = frozenset({"hooks", "integration"})
"""Folders whose tests with Spark share a session of their own, so these must not alternate in one process."""
ONE_PROCESS: Final = ("hdfs", "secure_kafka", "iceberg_java", "iceberg_rest", "nessie", "postgres")
"""Servers that take seconds to start, for few tests: the tests of each run in one process."""
STARTED: Final = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options of this repository.

    With `--rewrite-golden`, the reactions of the core become the expected lines. Review the diff.
    """
    parser.addoption(
        "--rewrite-golden", action="store_true", help="write what the core does into the golden cases"
    )
    parser.addoption("--costs", action="store_true", help="print the seconds and the tests of each folder")
    parser.addoption("--part", metavar="K/N", help="run the K-th of N parts, and record its result")


def pytest_configure() -> None:
    """Choose the release of the brokers."""
    choose_release()


@pytest.hookimpl(tryfirst=True)  # before that of xdist, which reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need a server, and those that must run in one process; select a part.

    `make fast` leaves out the tests with servers, and `make test` those of them without the mark `seam`.
    """
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group_of(item)))
        names = {*getattr(item, "fixturenames", ()), *(mark.name for mark in item.iter_markers())}
        if not WITH_SERVERS.isdisjoint(names):
            item.add_marker(pytest.mark.servers)
    if config.getoption("--part"):
        _select_part(config, items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse releases of pytest and xdist with which the tests of a group are in several processes."""
    if getattr(session.config.option, "loadgroup", False) and not all(
        "@" in each.nodeid for each in session.items
    ):
        raise pytest.UsageError("pytest-xdist does not see the groups of tests")


def _select_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the files of one part. The parts have about the same weight, and each file is in one of them."""
    part, parts = _part_of(config)
    weights: Counter[Path] = Counter()
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        weights[item.path] += (
            2000 if "long" in marks else 100 if "servers" in marks else 20 if "slow" in marks else 1
        )
    loads = [0] * parts
    kept: set[Path] = set()
    # The heaviest first, each to the lightest part. Paths decide ties, so that every process gets the same.
    for path, weight in sorted(weights.items(), key=lambda each: (-each[1], each[0])):
        lightest = loads.index(min(loads))
        loads[lightest] += weight
        if lightest == part - 1:
            kept.add(path)
    config.hook.pytest_deselected(items=[item for item in items if item.path not in kept])
    items[:] = [item for item in items if item.path in kept]


def _part_of(config: pytest.Config) -> tuple[int, int]:
    """Return the number of the part, and the number of all parts."""
    given = str(config.getoption("--part"))
    part, _, parts = given.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise pytest.UsageError(f"--part is {given!r}; it needs two numbers, such as 2/5")
    return int(part), int(parts)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note the time for the record of a part."""
    session.config.stash[STARTED] = time.monotonic()  # time: the length of the run is recorded


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Record commit and result of a part in `.test-results/`."""
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not config.getoption("--part") or hasattr(config, "workerinput") or reporter is None:
        return
    part, parts = _part_of(config)
    folder = TESTS.parent / ".test-results"
    folder.mkdir(exist_ok=True)
    record = {
        "part": f"{part}/{parts}",
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain")),
        "python": platform.python_version(),
        "exit": int(exitstatus),
        "seconds": round(time.monotonic() - config.stash[STARTED]),  # time: see above
        **{word: len(reporter.stats.get(word, ())) for word in ("passed", "failed", "error", "skipped")},
    }
    (folder / f"{part}-of-{parts}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _git(*words: str) -> str:
    """Return the answer of git, or nothing outside of a clone."""
    done = subprocess.run(["git", *words], cwd=TESTS, capture_output=True, text=True)
    return done.stdout.strip()


def _group_of(item: pytest.Item) -> str:
    """Return the group of a test: its server, its folder if it has the Spark session of that, else its file.

    A test of `planted` starts a process of its own, and is a group of its own.
    """
    server = next((each for each in ONE_PROCESS if each in getattr(item, "fixturenames", ())), None)
    if server is not None:
        return server
    folder = item.path.relative_to(TESTS).parts[0]
    if folder == "planted":
        return item.nodeid
    return folder if folder in TOGETHER and _has_spark(item) else str(item.path.relative_to(TESTS))


def _has_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ()) or item.get_closest_marker("spark") is not None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the costs of the folders: seconds of one process, fixtures included, and numbers of tests."""
    if not terminalreporter.config.getoption("--costs"):
        return
    millis: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    reports = (each for found in terminalreporter.stats.values() for each in found)
    for report in reports:
        if isinstance(report, pytest.TestReport):
            folder = report.nodeid.removeprefix("tests/").partition("/")[0]
            millis[folder] += round(report.duration * 1000)
            tests[folder] += report.when == "call"
    terminalreporter.section("costs")
    for folder, spent in millis.most_common():
        terminalreporter.write_line(f"{spent / 1000:8.1f} s {tests[folder]:6} tests  {folder}")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """True if the expected lines of the golden cases are to be written anew."""
    return bool(request.config.getoption("--rewrite-golden"))


@pytest.fixture(scope="session")
def kafka_bootstrap() -> Iterator[str]:
    """Bootstrap address of a Kafka that all tests share; topics are made on request only."""
    with kafka_server() as bootstrap:
        yield bootstrap


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """URL of a Redis-protocol server that all tests share; use keys of your own."""
    with redis_server() as url:
        yield url


@pytest.fixture(scope="session")
def s3proxy() -> Iterator[S3Proxy]:
    """Give an S3 server that all tests share; use folders of your own."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def azurite() -> Iterator[Emulator]:
    """Give an emulator of Azure's storage that all tests share; use folders of your own."""
    with azure_store() as store:
        yield store


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[Emulator]:
    """Give an emulator of Google's storage that all tests share; use folders of your own."""
    with google_store() as store:
        yield store


@pytest.fixture(scope="session")
def hdfs() -> Iterator[EmbeddedHdfs]:
    """Give a cluster of HDFS that all tests share; use folders of your own."""
    with EmbeddedHdfs() as server:
        yield server


@pytest.fixture
def own_hdfs() -> Iterator[EmbeddedHdfs]:
    """Give a cluster of HDFS of the test's own, to stop, kill and freeze."""
    with EmbeddedHdfs() as server:
        yield server


@pytest.fixture(scope="session")
def iceberg_rest() -> Iterator[RestCatalogServer]:
    """Give a REST catalog that all tests share; use namespaces of your own."""
    with rest_catalog() as server:
        yield server


@pytest.fixture(scope="session")
def iceberg_rest_of_s3(s3proxy: S3Proxy) -> Iterator[RestCatalogServer]:
    """Give a REST catalog whose tables can be in the S3 server; use namespaces of your own."""
    with rest_catalog(s3proxy.environment()) as server:
        yield server


@pytest.fixture(scope="session")
def nessie(s3proxy: S3Proxy) -> Iterator[Nessie]:
    """Give a REST catalog that changes several tables in one step; use namespaces of your own."""
    server = Nessie(s3proxy)
    try:
        server.start()
    except JavaError as error:
        pytest.skip(f"{error}. Several tables in an atomic REST catalog are NOT tested here")
    with server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Give the URI of a Postgres that all tests share; use namespaces of your own."""
    with postgres_server() as uri:
        yield uri


@pytest.fixture(scope="session")
def _glue() -> Iterator[str]:
    with glue_server() as uri:
        yield uri


@pytest.fixture
def glue(_glue: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the address of a double of Glue that all tests share; use databases of your own."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return _glue


@pytest.fixture(scope="session")
def iceberg_java() -> Iterator[IcebergJava]:
    """Give Iceberg's Java library, which shares no code with the product."""
    with IcebergJava() as java:
        yield java


@pytest.fixture(scope="session")
def spark_judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkJudge]:
    """Give a Spark that reads and writes tables beside us. It is in an environment of its own."""
    if os.environ.get(SKIPPED) == "no":
        pytest.skip(REASON)
    with SparkJudge(tmp_path_factory.mktemp("spark-judge")) as judge:
        yield judge


@pytest.fixture
def s3_double(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Double]:
    """Give a double of an S3 server, which this process uses for `s3://` locations.

    Failed requests are tried as often as ever, without the pauses that a real server needs.
    """
    pause = timedelta(milliseconds=1)
    at_once = {"init_backoff": pause, "max_backoff": pause, "base": 2}
    monkeypatch.setitem(storage_objects.RETRIES, "backoff", at_once)
    monkeypatch.setattr(storage_objects, "PAUSES", (0.0,) * len(storage_objects.PAUSES))
    with S3Double() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def own_kafka() -> Iterator[EmbeddedKafka]:
    """Give a broker of the test's own, to stop, kill and freeze."""
    with EmbeddedKafka() as kafka:
        yield kafka


@pytest.fixture
def own_valkey() -> Iterator[EmbeddedValkey]:
    """Give a Redis-protocol server of the test's own, to stop, kill and freeze."""
    with EmbeddedValkey() as valkey:
        yield valkey


@pytest.fixture
def unique() -> str:
    """Return a short name for topics, streams and keys that no other test uses."""
    return f"t{uuid.uuid4().hex[:10]}"
