"""Catalogs in Glue: the condition of a change, fields of the entry, and answers that are lost or wrong.

The double has moto's Glue, with the check of `VersionId` that moto leaves out (`tests/doubles/glue.py`).
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse

from sluicegate.installation import install_command
from sluicegate.lakes.iceberg.adapter import IcebergAdapter
from sluicegate.lakes.iceberg.glue import GlueCatalog
from sluicegate.lakes.iceberg.metadata import Metadata, NewSchema
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.storage import Uncertain
from tests.contracts.lakes.harness import USER
from tests.contracts.lakes.iceberg_glue_lake import GlueLake
from tests.doubles.glue import SECRET


@pytest.fixture
def lake(glue: str, unique: str, tmp_path: Path) -> GlueLake:
    return GlueLake(glue, unique, tmp_path)


@pytest.fixture
def catalog(lake: GlueLake) -> Iterator[GlueCatalog]:
    with closing(lake.glue_catalog()) as found:
        yield found


def change_of(base: Metadata) -> NewSchema:
    """Return a change that needs no data files."""
    schemas = base.fields["schemas"]
    return NewSchema({**schemas[0], "schema-id": len(schemas)}, 1, {}, 5)


def commit(lake: GlueLake) -> None:
    """Commit through another access to the catalog."""
    with closing(lake.glue_catalog()) as other:
        base = other.load()
        assert other.commit(base, change_of(base), {})


def metadata_files(lake: GlueLake) -> set[str]:
    return {path.name for path in (lake.root / "metadata").iterdir()}


@pytest.mark.slow
def test_all_other_fields_of_an_entry_stay(lake: GlueLake, catalog: GlueCatalog) -> None:
    lake.alter_entry({"other": "x"}, Description="words", Owner="me", Retention=3)
    before, base = lake.entry, catalog.load()
    assert catalog.commit(base, change_of(base), {}) is True
    after = lake.entry
    assert after["Parameters"]["metadata_location"] == catalog.load().location != base.location
    assert after["Parameters"]["previous_metadata_location"] == base.location
    for entry in (before, after):
        for name in ("metadata_location", "previous_metadata_location"):
            entry["Parameters"].pop(name, None)
        for name in ("VersionId", "UpdateTime"):
            entry.pop(name, None)
    assert after == before
    assert after["Description"] == "words"
    assert after["Parameters"]["other"] == "x"
    assert len(lake.table.metadata.schemas) == 2


@pytest.mark.slow
def test_any_change_of_the_entry_is_a_conflict(lake: GlueLake, catalog: GlueCatalog) -> None:
    base = catalog.load()
    lake.alter_entry({"other": "y"})
    before = metadata_files(lake)
    assert catalog.commit(base, change_of(base), {}) is False
    assert metadata_files(lake) == before
    base = catalog.load()
    assert catalog.commit(base, change_of(base), {}) is True
    assert lake.entry["Parameters"]["other"] == "y"


@pytest.mark.slow
@pytest.mark.parametrize("followers", [0, 1, 2])
def test_a_request_that_comes_twice_is_in_doubt(lake: GlueLake, catalog: GlueCatalog, followers: int) -> None:
    """A proxy repeats the request, and its second copy is refused."""
    base = catalog.load()
    send = catalog._client.update_table

    def update(**request: Any) -> None:
        send(**request)
        for _ in range(followers):
            commit(lake)
        send(**request)

    catalog._client.update_table = update
    with pytest.raises(Uncertain):
        catalog.commit(base, change_of(base), {})
    assert lake.schemas() == 2 + followers
    names = {each["metadata-file"] for each in lake.metadata.fields["metadata-log"]}
    assert all(lake.path_of(name).exists() for name in names)


def answered(status: int, body: bytes, seen: list[int]) -> Callable[..., AWSResponse]:
    """Return a handler that answers a request before it is sent."""

    class Raw:
        def stream(self) -> Iterator[bytes]:
            yield body

    def answer(**_: Any) -> AWSResponse:
        seen.append(status)
        return AWSResponse("", status, {"Content-Type": "application/x-amz-json-1.1"}, Raw())

    return answer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (500, "InternalServiceException", Uncertain),
        (503, "SlowDown", Uncertain),
        (502, "", Uncertain),
        (400, "OperationTimeoutException", Uncertain),
        (400, "InternalServiceException", Uncertain),
        (400, "ThrottlingException", LakeUnavailable),
        (429, "TooManyRequests", LakeUnavailable),
        (403, "AccessDeniedException", LakeUnavailable),
        (400, "EntityNotFoundException", LakeUnavailable),
    ],
)
def test_only_certain_refusals_delete_files(
    lake: GlueLake, catalog: GlueCatalog, status: int, code: str, kind: type[Exception]
) -> None:
    base = catalog.load()
    before, seen = metadata_files(lake), list[int]()
    body = json.dumps({"__type": code, "message": "m"}).encode() if code else b"<html>"
    answer = answered(status, body, seen)
    catalog._client.meta.events.register_first("before-send.glue.UpdateTable", answer)
    with pytest.raises(kind) as caught:
        catalog.commit(base, change_of(base), {})
    assert seen == [status]
    assert SECRET not in str(caught.value)
    assert (metadata_files(lake) == before) is (kind is LakeUnavailable)


def test_a_package_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ("boto3", "pyiceberg.catalog.glue", "sluicegate.lakes.iceberg.glue")
    for module in [name for name in sys.modules if name.startswith(ours)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "boto3", None)
    adapter = IcebergAdapter({"type": "glue"})
    with pytest.raises(TableRefused, match=re.escape(install_command("iceberg", "glue"))):
        adapter.open_committer(adapter.parse_table(f"{tmp_path}/db/numbers"), USER)
