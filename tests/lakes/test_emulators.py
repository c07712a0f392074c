"""Tables in the stores of Azure and Google, as emulators have them: commits, races and lost answers."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Final, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pypaimon import CatalogFactory

from sluicegate.events.models import FilesWritten, SnapshotRef
from sluicegate.lakes import storage_objects
from sluicegate.lakes.capabilities import CopiesFiles
from sluicegate.lakes.delta.checkpointing import main as make_checkpoint
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.iceberg.catalog import Identifier
from sluicegate.lakes.iceberg.committer import IcebergCommitter
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.metadata import MAIN
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import Absent, Committer, Found, OutcomeUnknown, Publication, Published
from sluicegate.lakes.storage import Content
from sluicegate.lakes.storage_objects import Clients, ObjectStorage, connect
from sluicegate.lakes.storages import open_storage
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import USER, Fault, Lake, Stream, written
from tests.contracts.lakes.iceberg_lake import FaultyCatalog, IcebergLake, open_library
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.doubles.cutting import CuttingProxy
from tests.emulators import EMULATORS, Emulator, emulator
from tests.lakes.outcomes import is_refused

ALL: Final = 1_000_000
ROUNDS: Final = 3
LAKES: Final = {"paimon": PaimonLake, "iceberg": IcebergLake, "delta": DeltaLake}


class Table:
    """A table with one integer column `id` in a store, made like a local one; its own library reads it."""

    def __init__(self, lake: str, store: Emulator, name: str, folder: Path) -> None:
        self.lake, self.store, self.folder = lake, store, folder
        model = LAKES[lake](folder / "model")
        self.adapter = model.adapter
        self.catalog = model.uri if isinstance(model, IcebergLake) else ""
        # The name of the copy is another one in the same catalog.
        self.ref = self.adapter.parse_table(f"{store.uri}/{name}/db/numbers2")
        maintenance = self.adapter.open_maintenance(self.ref)
        assert isinstance(maintenance, CopiesFiles)
        maintenance.create_like(self.adapter.parse_table(model.location))

    def event(self, ids: Iterable[int]) -> FilesWritten:
        """Write rows with the writer half."""
        return written(self.adapter, self.ref, pa.record_batch({"id": pa.array(list(ids), pa.int64())}))

    def stream(self, user: str = USER) -> Stream:
        """Open a committer with the environment as it is now."""
        return self.over(self.adapter.open_committer(self.ref, user))

    def over(self, committer: Committer) -> Stream:
        """Return the stream of a committer."""
        return Stream(cast(Lake, self), committer)

    def ids(self) -> list[int]:
        """Return the committed rows, as the library of the format reads them."""
        location = self.ref.location
        if self.lake == "delta":
            options = {name.lower(): text for name, text in self.store.environment(self.store.port).items()}
            found = pa.table(DeltaTable(location, storage_options=options).scan())
        elif self.lake == "iceberg":
            library = open_library("default", self.catalog, **self.store.access())
            found = library.load_table("db.numbers2").scan().to_arrow()
        else:
            # pypaimon knows no store of Azure. Paths in a table are relative, so it reads a copy.
            self._copy(self.folder / "copy" / "db.db" / "numbers")
            catalog = CatalogFactory.create({"warehouse": str(self.folder / "copy")})
            builder = catalog.get_table("db.numbers").new_read_builder()
            found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        return sorted(found["id"].to_pylist())

    def _copy(self, folder: Path) -> None:
        store = connect(self.ref.location).patient
        prefix = self.ref.location.removeprefix(f"{self.store.uri}/")
        for each in (each for page in store.list(prefix) for each in page):
            path = folder / each["path"].removeprefix(f"{prefix}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(store.get(each["path"]).bytes()))


@pytest.fixture(params=EMULATORS)
def store(request: pytest.FixtureRequest) -> Emulator:
    return emulator(request, request.param)


@pytest.fixture(params=LAKES)
def table(request: pytest.FixtureRequest, store: Emulator, unique: str, tmp_path: Path) -> Table:
    (tmp_path / "model").mkdir()
    return Table(request.param, store, unique, tmp_path)


def test_commits_are_read_by_the_library_of_their_format(table: Table) -> None:
    stream = table.stream()
    for number in (1, 2):
        made = stream.commit(number, [number, -number])
        assert stream.ask(number) == Found(made)
    assert table.ids() == [-2, -1, 1, 2]
    assert table.stream().ask(2) == Found(made)


@pytest.mark.parametrize("table", ["delta"], indirect=True)
def test_deltalake_makes_a_checkpoint(table: Table) -> None:
    table.stream().commit(1, [1])
    make_checkpoint(table.ref.location)
    names = open_storage(table.ref.location).names("_delta_log")
    assert {f"{1:020d}.checkpoint.parquet", "_last_checkpoint"} <= {*names}
    table.stream().commit(2, [2])
    assert table.ids() == [1, 2]


def test_of_two_publishers_on_one_head_one_wins(table: Table) -> None:
    streams = [table.stream(user) for user in ("stream-a", "stream-b")]
    expected = []
    for number in range(1, ROUNDS + 1):
        heads = [stream.head(number) for stream in streams]
        assert heads[0] == heads[1]
        events = [table.event([number * 10 + each]) for each in range(2)]
        at_once = Barrier(2)

        def publish(
            each: int,
            number: int = number,
            heads: list[SnapshotRef | None] = heads,
            events: list[FilesWritten] = events,
            at_once: Barrier = at_once,
        ) -> Publication:
            checked = streams[each].committer.check([events[each]])
            at_once.wait()
            return streams[each].publish(number, heads[each], checked)

        with ThreadPoolExecutor(2) as threads:
            outcomes = list(threads.map(publish, range(2)))
        (loser,) = (each for each in range(2) if not isinstance(outcomes[each], Published))
        assert is_refused(outcomes[loser], again=True), outcomes
        streams[loser].add(number, events[loser])
        expected += [number * 10, number * 10 + 1]
        assert table.ids() == expected


class Armed(ObjectStorage):
    """Loses answers of the store from the put on that decides a commit."""

    def __init__(self, uri: str, proxy: CuttingProxy, answers: int) -> None:
        super().__init__(uri, Clients(connect(uri)))
        self._proxy, self._answers = proxy, answers

    def _put(self, name: str, content: Content) -> bool:
        self._proxy.cutting = self._answers
        try:
            return super()._put(name, content if isinstance(content, bytes) else b"")
        finally:
            self._proxy.cutting = 0


def armed(table: Table, proxy: CuttingProxy, answers: int) -> Stream:
    """Return a stream whose next publication loses answers: those of the store, or that of the catalog."""
    if table.lake == "iceberg":
        files = Files()
        catalog = FaultyCatalog(table.catalog, "default", Identifier(("db",), "numbers2"), files)
        catalog.fault = Fault.LANDED if answers == ALL else None
        return table.over(IcebergCommitter(catalog, files, USER, MAIN))
    committer = {"paimon": PaimonCommitter, "delta": DeltaCommitter}[table.lake]
    return table.over(committer(Armed(table.ref.location, proxy, answers), USER))


@pytest.mark.parametrize("answers", [1, ALL], ids=["one answer", "every answer"])
def test_after_lost_answers_a_decision_is_found_and_not_doubled(
    table: Table, store: Emulator, answers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=1), "base": 2}
    monkeypatch.setitem(storage_objects.RETRIES, "backoff", at_once)
    monkeypatch.setattr(storage_objects, "PAUSES", (0.0,) * len(storage_objects.PAUSES))
    table.stream().commit(1, [1])
    event = table.event([2])
    with CuttingProxy(store.port) as proxy, monkeypatch.context() as behind:
        for variable, value in store.environment(proxy.port).items():
            behind.setenv(variable, value)
        stream = armed(table, proxy, answers)
        head, checked = stream.head(2), stream.committer.check([event])
        if table.lake == "iceberg":
            proxy.cutting = 1
        outcome = stream.publish(2, head, checked)
        assert proxy.cut
        found = stream.ask(2)
        assert isinstance(found, Found)
        if answers == 1:
            assert outcome == Published(found.snapshot)
        else:
            assert isinstance(outcome, OutcomeUnknown), outcome
    # A successor finds it, and what it repeats changes nothing.
    successor = table.stream()
    assert successor.ask(2) == found
    assert successor.publish(2, head, [event]) == Published(found.snapshot)
    assert table.ids() == [1, 2]
    assert isinstance(successor.ask(3), Absent)
