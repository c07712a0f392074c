"""A real catalog that hands out keys of the storage, which end between and during the steps of a commit."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from sluicegate.cli.local.errors import JavaError
from sluicegate.cli.proofs import prove_storage
from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.iceberg import vended
from sluicegate.lakes.iceberg.adapter import IcebergAdapter
from sluicegate.lakes.iceberg.vended import OPTION, VENDED
from sluicegate.lakes.port import Absent, CommitRequest, Found, Published, TableRef
from tests.cli.deployment import Deployment, check_page
from tests.contracts.lakes.harness import USER, written
from tests.nessie import Nessie
from tests.s3proxy import S3Proxy
from tests.vending import KeyGuard

pytestmark = [pytest.mark.slow, pytest.mark.matrix, pytest.mark.s3]


@pytest.fixture(scope="module")
def guard() -> Iterator[KeyGuard]:
    with S3Proxy(is_open=True) as store, KeyGuard(store.endpoint) as found:
        yield found


@pytest.fixture(scope="module")
def vending(guard: KeyGuard) -> Iterator[Nessie]:
    server = Nessie(guard)
    try:
        server.start()
    except JavaError as error:
        pytest.skip(f"{error}. Keys of a catalog are NOT tested with Nessie")
    with server:
        yield server


@pytest.fixture
def table(vending: Nessie, guard: KeyGuard, unique: str, monkeypatch: pytest.MonkeyPatch) -> TableRef:
    """Make a table. This process has no key of the store."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    library = RestCatalog("default", uri=vending.uri)
    library.create_namespace((unique,))
    made = library.create_table((unique, "numbers"), schema=pa.schema([("id", pa.int64())]))
    options = {"type": "rest", "uri": vending.uri, "identifier": f"{unique}.numbers", OPTION: VENDED}
    return IcebergAdapter().parse_table(made.location(), options)


def test_check_shows_how_long_keys_are_valid(
    guard: KeyGuard,
    table: TableRef,
    kafka_bootstrap: str,
    unique: str,
    tmp_path: Path,
    rewrite: bool,
) -> None:
    config = tmp_path / "sluicegate.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{kafka_bootstrap}"\ntopic_prefix = "{unique}"\n'
        f'[streams.flights]\nformat = "iceberg"\ntable = "{table.name}"\n[streams.flights.options]\n'
        + "".join(f'"{name}" = "{text}"\n' for name, text in table.options.items())
    )
    deployment = Deployment(config, {})
    deployment.create_topics()
    stands_for = {
        kafka_bootstrap: "BROKERS",
        table.options["uri"]: "CATALOG",
        table.name: "s3://BUCKET/FOLDER",
        unique: "PREFIX",
    }
    page = check_page("nessie", deployment, stands_for, rewrite=rewrite)
    assert guard.seen["given"] > 0
    assert not [secret for secret in guard.secrets() if secret in page]


def test_keys_that_end_at_any_step_lose_and_double_nothing(
    guard: KeyGuard,
    table: TableRef,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(vended, "PAUSE", 0.0)
    adapter = IcebergAdapter()
    committer = adapter.open_committer(table, USER)
    identity = committer.inspect().identity
    head = None
    for decision in range(1, 9):
        event = written(adapter, table, pa.record_batch({"id": pa.array([decision], pa.int64())}))
        guard.end_all()
        evidence = committer.check([event])
        if decision % 2:
            guard.end_all()
        asked = committer.ask(decision, f"digest-{decision}", identity, head)
        assert isinstance(asked, Absent)
        guard.end_all()
        outcome = committer.publish(CommitRequest(decision, f"digest-{decision}", asked.head, None, evidence))
        assert isinstance(outcome, Published), outcome
        head = outcome.snapshot
        guard.end_all()
        assert isinstance(committer.ask(decision, f"digest-{decision}", identity, head), Found)
    committer.close()
    assert guard.seen["ended"] > 8
    assert guard.seen["unknown"] == 0
    library = RestCatalog("default", uri=table.options["uri"])
    rows = library.load_table(table.options["identifier"]).scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == list(range(1, 9))
    assert not [secret for secret in guard.secrets() if secret in caplog.text]


def test_files_of_another_table_are_copied_with_the_keys_of_each(
    table: TableRef, unique: str, guard: KeyGuard
) -> None:
    library = RestCatalog("default", uri=table.options["uri"])
    made = library.create_table((unique, "copy"), schema=pa.schema([("id", pa.int64())]))
    adapter = IcebergAdapter()
    copy = adapter.parse_table(made.location(), {**table.options, "identifier": f"{unique}.copy"})
    event = written(adapter, table, pa.record_batch({"id": pa.array([1, 2], pa.int64())}))
    maintenance = adapter.open_maintenance(copy)
    maintenance.create_like(table)
    adopted = maintenance.adopt(event)
    assert adopted.location == copy.location
    (file,) = adopted.files
    assert maintenance.file_status([file.path]) == {file.path: FileStatus.UNREFERENCED}
    assert [each.verdict for each in prove_storage("copy", maintenance)] == ["OK"]
    assert guard.seen["unknown"] == 0
