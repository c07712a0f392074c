"""Groups behind REST: a server that applies tables one by one, and a proxy that loses, repeats and lies."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from sluicegate.lakes.iceberg.rest import _NotSent
from sluicegate.lakes.port import Absent, Found, LakeUnavailable, OutcomeUnknown
from tests.contracts.groups.harness import Coordinator
from tests.contracts.groups.iceberg_tables import NAMES, RestNamed, RestTables
from tests.doubles.proxy import Effect, Proxy
from tests.iceberg_java.java import RestCatalogServer
from tests.lakes.outcomes import is_refused

pytestmark = [pytest.mark.slow, pytest.mark.matrix]
ROWS = {"orders": [1], "items": [2], "bills": [3]}


@pytest.fixture
def proxy(iceberg_rest: RestCatalogServer) -> Iterator[Proxy]:
    with Proxy(iceberg_rest.uri) as found:
        yield found


@pytest.fixture
def tables(
    iceberg_rest: RestCatalogServer, unique: str, tmp_path: Path, proxy: Proxy
) -> Iterator[RestTables]:
    """Tables whose groups reach the catalog through the proxy."""
    found = RestTables({each: RestNamed(iceberg_rest, unique, tmp_path, each) for each in NAMES})
    found.options = {**found.options, "uri": proxy.uri}
    with closing(found):
        yield found


@pytest.fixture
def stream(tables: RestTables) -> Coordinator:
    return Coordinator(tables)


def ids(tables: RestTables) -> dict[str, list[int]]:
    return {name: lake.ids() for name, lake in tables.lakes.items()}


def drafts(tables: RestTables, name: str) -> set[str]:
    """Return the manifests and lists of a table that are there."""
    return {path.name for path in (tables.lakes[name].root / "metadata").glob("*.avro")}


@pytest.mark.parametrize(
    ("effect", "status"),
    [
        (Effect.LOST_AFTER, 0),
        (Effect.REPEATED, 0),
        *((Effect.ANSWERED_AFTER, each) for each in (400, 409, 503)),
    ],
)
def test_a_request_whose_answer_is_lost_or_wrong_is_found(
    proxy: Proxy, stream: Coordinator, tables: RestTables, effect: Effect, status: int
) -> None:
    files = stream.files(ROWS)
    head = stream.absent(1, files)
    posts = proxy.posts
    proxy.strike(effect, status)
    assert isinstance(stream.publish(1, head, files), OutcomeUnknown)
    # The proxy may repeat a request. The group does not.
    assert proxy.posts - posts == (2 if effect is Effect.REPEATED else 1)
    assert isinstance(stream.ask(1, files), Found)
    assert stream.settle(1, files) == 0
    stream.commit(2, {"orders": [4], "items": [5], "bills": [6]})
    assert ids(tables) == {"orders": [1, 4], "items": [2, 5], "bills": [3, 6]}


@pytest.mark.parametrize("status", [200, 204, 500, 502, 503])
def test_an_answer_without_an_effect_proves_nothing(
    proxy: Proxy, stream: Coordinator, tables: RestTables, status: int
) -> None:
    files = stream.files(ROWS)
    head = stream.absent(1, files)
    proxy.strike(Effect.ANSWERED_BEFORE, status)
    outcome = stream.publish(1, head, files)
    assert isinstance(outcome, OutcomeUnknown)
    assert "the change is not seen in: the anchor, bills, items" in outcome.reason or status >= 500
    assert isinstance(stream.ask(1, files), Absent)
    assert stream.settle(1, files) == 1
    assert ids(tables) == ROWS


@pytest.mark.parametrize("status", [400, 409, 429])
@pytest.mark.parametrize("tries", [0, 1, 2])
def test_a_refused_request_that_arrives_late_has_all_its_files(
    proxy: Proxy, stream: Coordinator, tables: RestTables, status: int, tries: int
) -> None:
    """A proxy may answer one copy while another one is under way, also while the next try is refused."""
    stream.commit(1, {"orders": [10], "items": [20], "bills": [30]})
    files = stream.files(ROWS)
    head = stream.absent(2, files)
    for _ in range(tries + 1):
        proxy.strike(Effect.HELD, status)
        assert is_refused(stream.publish(2, head, files), again=True)
    assert proxy.release() == 204
    assert isinstance(stream.ask(2, files), Found)
    assert stream.settle(2, files) == 0
    stream.commit(3, {"orders": [4], "items": [5], "bills": [6]})
    for _ in range(tries):
        assert proxy.release() == 409
    assert ids(tables) == {"orders": [1, 4, 10], "items": [2, 5, 20], "bills": [3, 6, 30]}


def test_a_refused_request_and_one_that_is_not_sent_leave_the_files_of_the_first(
    proxy: Proxy, stream: Coordinator, tables: RestTables
) -> None:
    stream.commit(1, {"orders": [10], "items": [20], "bills": [30]})
    files = stream.files(ROWS)
    head = stream.absent(2, files)
    proxy.strike(Effect.HELD, 409)
    assert is_refused(stream.publish(2, head, files), again=True)
    catalog = stream.group._anchor.catalog  # type: ignore[attr-defined]
    send = catalog._send

    def away(method: str, *arguments: object, **named: object) -> object:
        if method == "POST":
            raise _NotSent("the connection is refused")
        return send(method, *arguments, **named)

    catalog._send = away
    assert is_refused(stream.publish(2, head, files), again=True)
    del catalog._send
    assert proxy.release() == 204
    assert stream.settle(2, files) == 0
    assert ids(tables) == {"orders": [1, 10], "items": [2, 20], "bills": [3, 30]}


def test_files_of_a_refused_request_go_table_by_table_once_its_head_has_moved(
    proxy: Proxy, stream: Coordinator, tables: RestTables
) -> None:
    stream.commit(1, {"orders": [10], "items": [20], "bills": [30]})
    before = {name: drafts(tables, name) for name in NAMES}
    files = stream.files(ROWS)
    head = stream.absent(2, files)
    proxy.strike(Effect.HELD, 409)
    assert is_refused(stream.publish(2, head, files), again=True)
    kept = {name: drafts(tables, name) - before[name] for name in NAMES}
    assert all(kept.values())
    tables.lakes["items"].foreign([100])
    proxy.strike(Effect.HELD, 409)
    assert is_refused(stream.publish(2, head, files), again=True)
    # Now `items` can not get the first change any more. The others still can, as far as anybody knows.
    assert not kept["items"] & drafts(tables, "items")
    assert kept["bills"] <= drafts(tables, "bills")
    assert kept["orders"] <= drafts(tables, "orders")
    assert stream.settle(2, files) == 1
    stream.commit(3, {"orders": [4], "items": [5], "bills": [6]})
    assert not kept["orders"] & drafts(tables, "orders")
    assert ids(tables) == {"orders": [1, 4, 10], "items": [2, 5, 20, 100], "bills": [3, 6, 30]}


def test_tables_stand_in_the_request_by_name_behind_the_anchor(
    stream: Coordinator, tables: RestTables
) -> None:
    other = Coordinator(tables, names=["items", "bills"])
    asked: list[list[str]] = []
    catalog = other.group._anchor.catalog  # type: ignore[attr-defined]
    send = catalog._send

    def noted(method: str, endpoint: str, body: object = None, *rest: object, **named: object) -> object:
        if isinstance(body, dict):
            asked.append([each["identifier"]["name"] for each in body["table-changes"]])
        return send(method, endpoint, body, *rest, **named)

    catalog._send = noted
    other.commit(1, {"items": [1], "bills": [2], "orders": [3]})
    assert asked == [["orders", "bills", "items"]]


@pytest.mark.parametrize("applied", [1, 2])
def test_a_server_that_ends_between_two_tables_is_completed(
    stream: Coordinator, tables: RestTables, applied: int
) -> None:
    """Interleaving 13: it applies the tables in their order, and does not answer."""
    catalog = stream.group._anchor.catalog  # type: ignore[attr-defined]
    send = catalog._send

    def ending(method: str, endpoint: str, body: object = None, *rest: object, **named: object) -> object:
        if isinstance(body, dict):
            send(method, endpoint, {"table-changes": body["table-changes"][:applied]}, *rest, **named)
            raise LakeUnavailable("the server is away")
        return send(method, endpoint, body, *rest, **named)

    files = stream.files(ROWS)
    head = stream.absent(1, files)
    catalog._send = ending
    assert isinstance(stream.publish(1, head, files), OutcomeUnknown)
    del catalog._send
    answer = stream.ask(1, files)
    assert isinstance(answer, Found)
    assert [*answer.tables] == ["bills"][: applied - 1]
    assert stream.settle(1, files) == 1
    assert ids(tables) == ROWS
    stream.commit(2, {"orders": [4], "items": [5], "bills": [6]})


def test_a_table_that_is_dropped_from_a_request_is_completed(
    proxy: Proxy, stream: Coordinator, tables: RestTables
) -> None:
    """Interleaving 13: the server answers success."""
    catalog = stream.group._anchor.catalog  # type: ignore[attr-defined]
    send = catalog._send

    def dropping(method: str, endpoint: str, body: object = None, *rest: object, **named: object) -> object:
        if isinstance(body, dict):
            left = [each for each in body["table-changes"] if each["identifier"]["name"] != "items"]
            body = {"table-changes": left}
        return send(method, endpoint, body, *rest, **named)

    files = stream.files(ROWS)
    head = stream.absent(1, files)
    catalog._send = dropping
    outcome = stream.publish(1, head, files)
    del catalog._send
    assert isinstance(outcome, OutcomeUnknown)
    assert "the change is not seen in: items" in outcome.reason
    assert stream.settle(1, files) == 1
    assert ids(tables) == ROWS


def test_each_row_is_there_once_beside_a_foreign_writer(stream: Coordinator, tables: RestTables) -> None:
    """Apache's server with a foreign writer on one table while decisions run: each row once in each table."""
    lake, stop, foreign = tables.lakes["items"], threading.Event(), list[int]()

    def write() -> None:
        table = lake.table
        while not stop.is_set():
            try:
                table.append(pa.table({"id": pa.array([1000 + len(foreign)], pa.int64())}))
                foreign.append(1000 + len(foreign))
            except CommitFailedException:
                table = lake.table

    writer = threading.Thread(target=write)
    writer.start()
    apart, decision = 0, 0
    try:
        # Until the server has torn a decision, or for long.
        while decision < 40 and (decision < 10 or not apart):
            decision += 1
            files = stream.files({name: [decision] for name in NAMES})
            answer = stream.ask(decision, files)
            assert isinstance(answer, Absent)
            stream.publish(decision, answer.head, files)
            found = stream.ask(decision, files)
            apart += isinstance(found, Found) and len(found.tables) < 2
            stream.settle(decision, files, tries=200)
    finally:
        stop.set()
        writer.join()
    own = [*range(1, decision + 1)]
    assert ids(tables) == {"orders": own, "items": [*own, *foreign], "bills": own}
    print(f"{decision} decisions beside {len(foreign)} foreign commits: {apart} were apart, and completed")
