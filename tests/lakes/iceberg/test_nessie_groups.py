"""Groups on Nessie: atomic, but for the first snapshot of a table, of which no condition is checked."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException

from sluicegate.lakes.iceberg.rest import RestTransactions
from sluicegate.lakes.port import Absent, Found, OutcomeUnknown, Published, Unproven
from tests.contracts.groups.harness import Coordinator, Late
from tests.contracts.groups.iceberg_tables import NAMES, NessieNamed, RestTables
from tests.contracts.lakes.iceberg_objects import s3_folder
from tests.lakes.outcomes import is_refused
from tests.nessie import Nessie

pytestmark = [pytest.mark.slow, pytest.mark.matrix, pytest.mark.s3]
ROWS = {"orders": [1], "items": [2], "bills": [3]}


@pytest.fixture
def tables(request: pytest.FixtureRequest, nessie: Nessie, tmp_path: Path) -> Iterator[RestTables]:
    objects = s3_folder(request)
    with closing(RestTables({each: NessieNamed(nessie, tmp_path, objects, each) for each in NAMES})) as found:
        yield found


@pytest.fixture
def stream(tables: RestTables) -> Coordinator:
    return Coordinator(tables)


def ids(tables: RestTables) -> dict[str, list[int]]:
    return {name: lake.ids() for name, lake in tables.lakes.items()}


def test_a_request_that_comes_late_changes_nothing(stream: Coordinator, tables: RestTables) -> None:
    """Each publication needs the head of the anchor, whose condition the server checks."""
    late, files = Late(), stream.files(ROWS)
    stream.at_step(late)
    assert isinstance(stream.publish(1, stream.absent(1, files), files), OutcomeUnknown)
    stream.settle(1, files)
    stream.commit(2, {"orders": [4], "items": [5], "bills": [6]})
    assert late.arrive().status_code == 409
    assert ids(tables) == {"orders": [1, 4], "items": [2, 5], "bills": [3, 6]}


def test_a_first_snapshot_replaces_any_other(
    request: pytest.FixtureRequest, nessie: Nessie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason for which no group takes a table without a snapshot: a late request sets tables back."""
    objects = s3_folder(request)
    lakes = {each: NessieNamed(nessie, tmp_path, objects, each) for each in NAMES}
    monkeypatch.setattr(RestTransactions, "scope", lambda *_: None)
    with closing(RestTables(lakes, empty=True)) as tables:
        stream, late = Coordinator(tables), Late()
        files = stream.files(ROWS)
        stream.at_step(late)
        assert isinstance(stream.publish(1, stream.absent(1, files), files), OutcomeUnknown)
        stream.settle(1, files)
        stream.commit(2, {"orders": [4], "items": [5], "bills": [6]})
        assert late.arrive().status_code == 204
        assert ids(tables) == ROWS
        assert isinstance(stream.ask(3, NAMES), Unproven)


def test_no_decision_is_torn_beside_a_foreign_writer(stream: Coordinator, tables: RestTables) -> None:
    lake, stop, foreign = tables.lakes["items"], threading.Event(), list[int]()

    def write() -> None:
        table = lake.table
        while not stop.is_set():
            try:
                table.append(pa.table({"id": pa.array([1000 + len(foreign)], pa.int64())}))
                foreign.append(1000 + len(foreign))
            except (CommitFailedException, ValidationException):
                table = lake.table

    writer = threading.Thread(target=write)
    writer.start()
    refusals, decision = 0, 0
    try:
        # Until the writer has come between often enough.
        while decision < 60 and (decision < 10 or refusals < 5):
            decision += 1
            files = stream.files({name: [decision] for name in NAMES})
            while True:
                answer = stream.ask(decision, files)
                if isinstance(answer, Found):
                    assert answer.tables.keys() == {"items", "bills"}
                    stream.record(decision, answer)
                    break
                assert isinstance(answer, Absent)
                outcome = stream.publish(decision, answer.head, files)
                refusals += is_refused(outcome, again=True)
                assert isinstance(outcome, Published | OutcomeUnknown) or is_refused(outcome, again=True)
    finally:
        stop.set()
        writer.join()
    own = [*range(1, decision + 1)]
    assert ids(tables) == {"orders": own, "items": [*own, *foreign], "bills": own}
    print(f"{decision} decisions beside {len(foreign)} foreign commits, {refusals} refusals, none apart")
