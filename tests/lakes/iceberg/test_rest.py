"""Commits to a real REST catalog through a proxy that loses, repeats and answers wrongly."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.lakes.capabilities import CatalogAccess
from sluicegate.lakes.iceberg.committer import IcebergCommitter
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.metadata import MAIN
from sluicegate.lakes.iceberg.rest import RestTable
from sluicegate.lakes.port import Absent, Found, LakeUnavailable, OutcomeUnknown, Published
from tests.contracts.lakes.harness import USER, Stream
from tests.contracts.lakes.iceberg_rest_lake import RestLake
from tests.doubles.proxy import Effect, Proxy
from tests.iceberg_java.java import RestCatalogServer
from tests.lakes.outcomes import is_refused


@pytest.fixture
def proxy(iceberg_rest: RestCatalogServer) -> Iterator[Proxy]:
    with Proxy(iceberg_rest.uri) as found:
        yield found


@pytest.fixture(params=[pytest.param(2, marks=pytest.mark.matrix), 3])
def lake(
    request: pytest.FixtureRequest, iceberg_rest: RestCatalogServer, unique: str, tmp_path: Path
) -> RestLake:
    return RestLake(iceberg_rest, unique, tmp_path, request.param)


def stream_through(proxy: Proxy, lake: RestLake) -> Stream:
    """Return a stream whose committer reaches the catalog through the proxy."""
    files = Files()
    table = RestTable({"uri": proxy.uri}, "default", lake.table_name, files)
    return Stream(lake, IcebergCommitter(table, files, USER, MAIN))


def metadata_files(lake: RestLake) -> set[str]:
    """Return the manifests and lists that are there."""
    return {path.name for path in (lake.root / "metadata").glob("*.avro")}


@pytest.mark.seam
@pytest.mark.parametrize(
    ("effect", "status"),
    [
        (Effect.LOST_AFTER, 0),
        *((Effect.ANSWERED_AFTER, status) for status in (409, 503)),
        *(
            pytest.param(Effect.ANSWERED_AFTER, status, marks=pytest.mark.matrix)
            for status in (400, 403, 412, 429, 500, 502, 504)
        ),
        (Effect.REPEATED, 0),
    ],
)
def test_a_commit_whose_answer_is_lost_or_wrong_is_found(
    proxy: Proxy, lake: RestLake, effect: Effect, status: int
) -> None:
    stream = stream_through(proxy, lake)
    stream.commit(1, [1])
    head, event = stream.head(2), lake.event([2])
    proxy.strike(effect, status)
    outcome = stream.publish(2, head, [event])
    assert isinstance(outcome, OutcomeUnknown), outcome
    assert isinstance(stream.ask(2), Found)
    stream.recorded = lake.committer().inspect().head
    stream.commit(3, [3])
    assert lake.ids() == [1, 2, 3]


@pytest.mark.parametrize("status", [0, 500, 502, 503, 504])
def test_a_commit_that_may_be_lost_is_absent_and_can_be_repeated(
    proxy: Proxy, lake: RestLake, status: int
) -> None:
    stream = stream_through(proxy, lake)
    stream.commit(1, [1])
    head, event = stream.head(2), lake.event([2])
    proxy.strike(Effect.ANSWERED_BEFORE if status else Effect.LOST_BEFORE, status)
    assert isinstance(stream.publish(2, head, [event]), OutcomeUnknown)
    answer = stream.ask(2)
    assert isinstance(answer, Absent)
    assert answer.head == head
    assert isinstance(stream.publish(2, head, [event]), Published)
    assert lake.ids() == [1, 2]


@pytest.mark.parametrize("status", [400, 403, 409, 412, 429])
def test_a_refused_commit_that_arrives_late_has_all_its_files(
    proxy: Proxy, lake: RestLake, status: int
) -> None:
    """A proxy may answer one copy of a request while another one is still on its way."""
    stream = stream_through(proxy, lake)
    stream.commit(1, [1])
    head, event = stream.head(2), lake.event([2])
    proxy.strike(Effect.HELD, status)
    assert is_refused(stream.publish(2, head, [event]), again=True)
    assert proxy.release() == 200
    found = stream.ask(2)
    assert isinstance(found, Found)
    stream.recorded = found.snapshot
    stream.commit(3, [3])
    assert lake.ids() == [1, 2, 3]


@pytest.mark.parametrize("status", [400, 403, 409, 412, 429])
def test_the_files_of_a_refused_commit_go_once_another_has_come_first(
    proxy: Proxy, lake: RestLake, status: int
) -> None:
    stream = stream_through(proxy, lake)
    stream.commit(1, [1])
    before = metadata_files(lake)
    proxy.strike(Effect.HELD, status)
    outcome = stream.publish(2, stream.head(2), [lake.event([2])])
    assert is_refused(outcome, again=True)
    assert status == 409 or f"{status} Injected: injected" in outcome.reason
    kept = metadata_files(lake) - before
    assert kept
    stream.commit(2, [2])
    stream.commit(3, [3])
    assert not kept & metadata_files(lake)
    assert proxy.release() == 409
    assert lake.ids() == [1, 2, 3]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirected_commit_is_not_published(proxy: Proxy, lake: RestLake, status: int) -> None:
    """A client that follows turns the POST into a GET, whose success says nothing about the commit."""
    stream = stream_through(proxy, lake)
    head, event = stream.head(1), lake.event([1])
    proxy.strike(Effect.REDIRECTED, status)
    outcome = stream.publish(1, head, [event])
    assert is_refused(outcome, again=True)
    assert f"{status} redirects to {lake.uri}" in outcome.reason
    assert lake.ids() == []
    assert stream.ask(1) == Absent(None)
    stream.commit(1, [1])
    assert lake.ids() == [1]


@pytest.mark.seam
def test_a_catalog_that_checks_no_condition_is_seen(proxy: Proxy, lake: RestLake) -> None:
    access = RestTable({"uri": proxy.uri}, "default", lake.table_name, Files()).access
    before = lake.ids()
    assert access() == CatalogAccess("REST catalog", proxy.uri, "none", refuses=True)
    proxy.strike(Effect.ANSWERED_BEFORE, 200)
    assert access().refuses is False
    proxy.strike(Effect.ANSWERED_BEFORE, 403)
    with pytest.raises(LakeUnavailable, match="cannot be changed: 403"):
        access()
    assert lake.ids() == before
