"""`sluicegate check --table`: its page for each server, and what it refuses. It leaves nothing behind."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

from sluicegate.cli import proofs
from sluicegate.cli.local.servers import EmbeddedHdfs
from sluicegate.cli.proofs import describe_table, prove_storage, settings_lines
from sluicegate.coordinator.settings.model import Settings
from sluicegate.lakes.capabilities import CatalogAccess
from sluicegate.lakes.storage import Content, whole
from sluicegate.lakes.storage_local import LocalStorage
from tests.cli.deployment import Deployment, as_json, check_page
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.delta_objects import DeltaOnS3
from tests.contracts.lakes.iceberg_glue_lake import GlueLake
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.doubles.glue import SECRET
from tests.lakes.paimon.keyed import KeyedLake
from tests.s3proxy import S3Proxy

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page names variables of stores: there are those of the test alone."""
    for name in os.environ:
        if name.startswith(("AWS_", "HADOOP_")):
            monkeypatch.delenv(name)


def words(deployment: Deployment, unique: str, folder: Path) -> dict[str, str]:
    """Return the words of a page for what differs between runs."""
    server = deployment.settings.kafka.bootstrap_servers
    return {server: "BROKERS", unique: "PREFIX", str(folder): "/FOLDER"}


def configure(deployment: Deployment, lake: str, table: str, options: dict[str, str] | None = None) -> None:
    """Give the stream a table, and make the topics."""
    deployment.config.write_text(
        deployment.config.read_text().partition("[streams")[0]
        + f'[streams.flights]\nformat = "{lake}"\ntable = "{table}"\n[streams.flights.options]\n'
        + "".join(f'"{name}" = "{text}"\n' for name, text in (options or {}).items())
    )
    deployment.create_topics()


@pytest.mark.seam
@pytest.mark.parametrize("lake", ["paimon", "paimon-keys", "delta", "iceberg"])
def test_a_table_on_local_files(
    lake: str, deployment: Deployment, unique: str, tmp_path: Path, rewrite: bool
) -> None:
    folder, options = tmp_path / "lake", dict[str, str]()
    folder.mkdir()
    if lake == "iceberg":
        iceberg = IcebergLake(folder)
        location, options = iceberg.location, {"uri": iceberg.uri, "identifier": "db.numbers"}
    elif lake == "delta":
        location = DeltaLake(folder).location
    else:
        location = (KeyedLake if lake == "paimon-keys" else PaimonLake)(folder).location
    configure(deployment, lake.partition("-")[0], location, options)
    before = sorted(folder.rglob("*"))
    check_page(lake, deployment, words(deployment, unique, tmp_path), rewrite=rewrite)
    assert sorted(folder.rglob("*")) == before


@pytest.mark.s3
def test_a_table_in_s3(
    deployment: Deployment,
    s3proxy: S3Proxy,
    unique: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rewrite: bool,
) -> None:
    for name, value in s3proxy.environment().items():
        monkeypatch.setenv(name, value)
    lake = DeltaOnS3(s3proxy.bucket, unique, s3proxy.environment())
    configure(deployment, "delta", lake.location)
    before = sorted(s3proxy.bucket.rglob("*"))
    page = check_page("s3", deployment, words(deployment, unique, tmp_path), rewrite=rewrite)
    assert sorted(s3proxy.bucket.rglob("*")) == before
    assert s3proxy.environment()["AWS_SECRET_ACCESS_KEY"] not in page


@pytest.mark.hdfs
def test_a_table_in_hdfs(
    deployment: Deployment, hdfs: EmbeddedHdfs, unique: str, tmp_path: Path, rewrite: bool
) -> None:
    catalog = CatalogFactory.create({"warehouse": f"{hdfs.uri}/{unique}"})
    catalog.create_database("db", True)
    schema = Schema.from_pyarrow_schema(pa.schema([("id", pa.int64())]))
    catalog.create_table("db.orders", schema, False)
    configure(deployment, "paimon", f"{hdfs.uri}/{unique}/db.db/orders")
    stands_for = words(deployment, unique, tmp_path) | {hdfs.uri: "hdfs://NAMENODE"}
    check_page("hdfs", deployment, stands_for, rewrite=rewrite)


def test_a_table_in_glue(
    deployment: Deployment,
    glue: str,
    unique: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rewrite: bool,
) -> None:
    lake = GlueLake(glue, unique, tmp_path / "lake")
    options = {**(lake.options or {}), "identifier": f"{unique}.numbers"}
    configure(deployment, "iceberg", lake.location, options)
    stands_for = words(deployment, unique, tmp_path) | {glue: "GLUE"}
    assert SECRET not in check_page("glue", deployment, stands_for, rewrite=rewrite)


def test_a_further_table_of_a_stream(deployment: Deployment, tmp_path: Path) -> None:
    iceberg = IcebergLake(tmp_path / "lake")
    iceberg.library.create_table("db.items", schema=pa.schema([("id", pa.int64())]))
    configure(deployment, "iceberg", iceberg.location, {"uri": iceberg.uri, "identifier": "db.numbers"})
    text = deployment.config.read_text()
    deployment.config.write_text(f'{text}[streams.flights.tables]\nitems = "db.items"\n')
    result = deployment.run("check", "--table", "flights/items")
    lines = [line for line in result.stdout.splitlines() if " of flights" in line.partition(":")[0]]
    assert [line.partition(":")[0] for line in lines] == [
        f"OK       table items of flights{more}"
        for more in ("", ", files", ", writing", ", allows", ", catalog", ", cleaning")
    ]
    assert 'items = "db.items"' in result.stdout
    assert result.exit_code == 0


class Overwriting(LocalStorage):
    """Ignores that a file is there, as stores without conditions do."""

    def put_if_absent(self, name: str, content: Content, draft: str = "") -> bool:
        self.replace(name, whole(content))
        return True


class Sticky(LocalStorage):
    """Deletes nothing."""

    def remove(self, name: str) -> bool:
        return self.size(name) is not None


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Overwriting, "of two puts of one name at once, 2 won, and one has to"),
        (Sticky, "was put, and cannot be deleted. Grant this client the deletion of files"),
    ],
)
def test_a_store_that_breaks_a_promise_is_refused(
    kind: type[LocalStorage], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = PaimonLake(tmp_path)
    monkeypatch.setattr(proofs, "open_storage", lambda location, source: kind(location))
    monkeypatch.setattr(proofs, "storage_of", lambda maintenance: kind(maintenance.location))
    before = sorted(tmp_path.rglob("*"))
    (found,) = prove_storage("table of flights", lake.maintenance(), races=1)
    assert (found.check, found.ok) == ("table of flights, writing", False)
    assert told in found.detail
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("access", "verdict", "told"),
    [
        (CatalogAccess("REST catalog", "C", "none", refuses=True), "OK", "none. A change of nothing, whose"),
        (CatalogAccess("REST catalog", "C", "none", refuses=False), "WARNING", "it checks no conditions"),
        (CatalogAccess("REST catalog", "C", "OAuth2", 20.0), "OK", "OAuth2, whose token is valid for 20 s"),
        (CatalogAccess("REST catalog", "C", "OAuth2", -5.0), "WARNING", "whose token has ended"),
    ],
)
def test_a_catalog_is_described(
    access: CatalogAccess, verdict: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = IcebergLake(tmp_path)
    maintenance = lake.maintenance()
    monkeypatch.setattr(maintenance, "catalog_access", lambda: access)
    table = lake.adapter.parse_table(lake.location, {"identifier": "db.numbers"})
    state = lake.committer().inspect()
    _, found = describe_table("table of flights", lake.adapter, table, state, maintenance)
    assert (found.check, found.verdict) == ("table of flights, catalog", verdict)
    assert told in found.detail


@pytest.mark.seam
def test_missing_topics_are_not_made_by_a_proof(deployment: Deployment, unique: str) -> None:
    for _ in range(2):
        result = deployment.run("check", "--table", "flights", "--json")
        found = as_json(result)
        missing = [each for each in found["checks"] if each["check"].startswith("topic ")]
        assert [each["detail"].partition(". ")[2] for each in missing] == [
            "Create it: sluicegate topics create"
        ] * 4
    assert f'topic_prefix = "{unique}"' in found["settings"]
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("nobody", "stream nobody is not configured; configured are: flights"),
        ("flights/late", "no further table 'late'. It has: none. For its own table: --table flights"),
    ],
)
def test_a_name_that_is_not_in_the_settings_is_refused(nobody: Deployment, named: str, told: str) -> None:
    result = nobody.run("check", "--table", named)
    assert (result.exit_code, told in result.output) == (2, True)


def test_settings_are_shown_without_secrets() -> None:
    secret = "hidden-word"  # noqa: S105
    options = {
        "uri": f"postgresql+psycopg://me:{secret}@catalog/iceberg",
        "credential": f"client:{secret}",
        "s3.anything": secret,
        "identifier": "db.flights",
    }
    values = {
        "kafka": {
            "bootstrap_servers": "broker:9092",
            "security": {"protocol": "SASL_SSL", "username": "me", "password": secret},
        },
        "streams": {"flights": {"format": "iceberg", "table": "abfss://c@a.dfs/x", "options": options}},
    }
    lines = settings_lines(Settings.model_validate(values), "flights")
    assert not [line for line in lines if secret in line]
    assert [line for line in lines if line.startswith("#")] == [
        f"# {name} is set, and may be a secret" for name in ("password", "credential", '"s3.anything"', "uri")
    ]
    assert {'identifier = "db.flights"', 'table = "abfss://c@a.dfs/x"', 'username = "me"'} <= {*lines}
