"""A stream of three tables of Iceberg in one catalog of sqlite: its log in memory, its commits real."""

import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from aiokafka import ConsumerRecord
from pydantic import SecretStr

from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.commit import Committing, Outcome
from sluicegate.coordinator.core.effects import Ask, InspectTable, MachineSettings
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.table import TableProgress
from sluicegate.coordinator.replay.decisions import Decoder, Start
from sluicegate.coordinator.replay.log import StreamLog
from sluicegate.coordinator.replay.tables import ReplayTable
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream.account import account_of
from sluicegate.coordinator.stream.table import StreamTable
from sluicegate.events.codec import read_record
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType, LogRecord, with_counts
from sluicegate.events.files import attempt_label
from sluicegate.events.models import (
    Assignment,
    CheckpointCompleted,
    CutCommitted,
    CutDecided,
    FilesWritten,
    Position,
    RegionRegistered,
    StreamCommand,
)
from sluicegate.events.problems import Code
from sluicegate.kafka.bodies import WrittenEvent
from sluicegate.lakes.iceberg.adapter import ADAPTER
from sluicegate.lakes.port import TableRef, TableState
from tests.contracts.lakes.harness import written
from tests.contracts.lakes.iceberg_lake import ID_ONLY, local, open_library

STREAM: Final = "shop"
USER: Final = "sluicegate-shop"
FURTHER: Final = ("items", "taxes")
LIFE: Final = "q" * 32
HOUR: Final = 3_600_000


class ShopLog(StreamLog):
    """The log of the stream, as a replay reads it."""

    partition = 0

    def __init__(self) -> None:
        self.decode: Decoder = read_record
        self.records: list[ConsumerRecord] = []
        self.first = 0
        """Records before it are deleted."""

    def append_event(self, envelope: Envelope, body: Any) -> LogRecord | None:
        key, value, headers = encode_event(envelope, body, 0)
        offset = len(self.records)
        made = ConsumerRecord("events", 0, offset, offset * HOUR, 1, key, value, None, 0, 0, tuple(headers))
        self.records.append(made)
        return read_record(offset, offset * HOUR, headers, value).record

    async def end(self) -> int:
        return len(self.records)

    async def read(self, start: int, end: int, what: str = "") -> AsyncGenerator[list[ConsumerRecord], None]:
        assert start >= self.first
        if start < end:
            yield self.records[start:end]

    async def bodies(self, offsets: Sequence[int]) -> dict[int, WrittenEvent]:
        found = {}
        for offset in offsets:
            record = self.records[offset]
            read = read_record(offset, 0, record.headers, record.value).record
            assert read is not None
            assert record.value is not None
            found[offset] = WrittenEvent(read.envelope, record.value)
        return found


class Shop:
    """One region, one coordinator, and the tables orders (the anchor), items and taxes."""

    def __init__(self, root: Path, threads: Executor, further: Iterable[str] = FURTHER) -> None:
        self.root, self._threads = root, threads
        self.uri = f"sqlite:///{root}/catalog.db"
        self.library = open_library("default", self.uri, warehouse=f"file://{root}")
        self.library.create_namespace("shop")
        self.places = {name: self.create(name) for name in ("orders", *further)}
        self.settings = self.named({name: f"shop.{name}" for name in further})
        self.log = ShopLog()
        self.replica = Replica(STREAM, 0, None, -1)
        self.table = StreamTable(self.settings, threads)
        self.progress = TableProgress()
        self.position: Position | None = None

    def create(self, name: str) -> str:
        return self.library.create_table(f"shop.{name}", ID_ONLY).location()

    def named(self, tables: Mapping[str, str]) -> StreamSettings:
        """Return the settings with these further tables."""
        options = {"type": "sql", "uri": self.uri, "identifier": "shop.orders"}
        return StreamSettings(
            format="iceberg",
            table=self.places["orders"],
            tables={name: {"identifier": each} for name, each in tables.items()},
            commit_user=USER,
            options={key: SecretStr(value) for key, value in options.items()},
        )

    @property
    def state(self) -> LogState:
        return self.replica.state

    # --- the log ----------------------------------------------------------------------------------

    def put(self, kind: EventType, body: Any, **more: Any) -> Any:
        """Append an event, and return its effect."""
        envelope = Envelope(uuid.uuid4().hex, kind, STREAM, **more)
        if isinstance(body, FilesWritten):
            envelope = with_counts(envelope, body)
        record = self.log.append_event(envelope, body)
        assert record is not None
        ignored = self.replica.step(record).ignored
        # A loser may arrive after the decision.
        assert ignored is None or ignored.code is Code.SETTLED, ignored
        return envelope.id

    async def begin(self) -> None:
        """Log the policy, and register the region."""
        await self.reload()
        assignment = Assignment(number=0, regions=("r",))
        self.put(
            EventType.REGION_REGISTERED,
            RegionRegistered(assignment=assignment),
            region="r",
            incarnation=LIFE,
        )

    async def reload(self, settings: StreamSettings | None = None) -> None:
        """Log the policy of the settings."""
        if settings is not None:
            self.table.close()
            self.settings, self.table = settings, StreamTable(settings, self._threads)
        found = await self.table.inspect(InspectTable())
        assert isinstance(found, TableState), found
        self.progress.identity = found.identity
        policy = MachineSettings(self.settings.policy()).policy_to_log(
            self.state.policy, None, found.tables, self.state.tables
        )
        if policy is not None:
            self.put(EventType.STREAM_POLICY, policy)

    def order(self, command: StreamCommand) -> None:
        """Append an order; a coordinator that starts later reads it."""
        self.progress = TableProgress(identity=self.progress.identity)
        self.put(EventType.STREAM_COMMAND, command)

    # --- files ------------------------------------------------------------------------------------

    def ref(self, name: str) -> TableRef:
        """Return a table by its name in the catalog."""
        options = {**self.settings.adapter_options(), "identifier": f"shop.{name}"}
        return ADAPTER.parse_table(self.places[name], options)

    def files(self, name: str, ids: Sequence[int], number: int, writer: str, attempt: str) -> FilesWritten:
        label = attempt_label(STREAM, "r", LIFE, number, writer, attempt)
        batch = pa.record_batch({"id": pa.array(ids, pa.int64())})
        further = self.settings.tables.get(name)
        place = further.identifier.removeprefix("shop.") if further is not None else name
        return written(ADAPTER, self.ref(place or "orders"), batch, label=label)

    def write(self, name: str, ids: Sequence[int], number: int, attempt: str = "a") -> tuple[str, list[Path]]:
        """Write rows for a table, and return the event's id and the files. The anchor has the empty name."""
        writer = f"w-{name or 'orders'}"
        body = self.files(name, ids, number, writer, attempt)
        more = {"region": "r", "incarnation": LIFE, "checkpoint": number, "table": name}
        event = self.put(EventType.FILES_WRITTEN, body, writer=writer, attempt=attempt, **more)
        return event, [local(f"{body.location}/{file.path}") for file in body.files]

    def checkpoint(self, number: int, **rows: Sequence[int]) -> dict[str, list[Path]]:
        """Write and complete a checkpoint: rows by the name of the table. Return its files."""
        made = {name: self.write("" if name == "orders" else name, ids, number) for name, ids in rows.items()}
        self.complete(number, [event for event, _ in made.values()])
        return {name: files for name, (_, files) in made.items()}

    def complete(self, number: int, events: Sequence[str]) -> None:
        body = CheckpointCompleted(
            events=tuple(events), predecessor=self.position, source_digest=f"d{number}"
        )
        self.put(EventType.CHECKPOINT_COMPLETED, body, region="r", incarnation=LIFE, checkpoint=number)
        self.position = Position(incarnation=LIFE, checkpoint=number, digest=f"d{number}")

    # --- commits ----------------------------------------------------------------------------------

    def decide(self) -> None:
        body = cuts.choose(self.replica.log, waited=cuts.Waited(False, False, False))
        assert isinstance(body, CutDecided), body
        self.put(EventType.CUT_DECIDED, body)

    async def publish(self) -> Outcome:
        """Bring the decision into the tables, as a coordinator does; the log gets no outcome yet."""
        committing, state = Committing(self.progress), self.state
        while committing.outcome is None:
            effect = committing.next(state, None)
            assert effect is not None
            if isinstance(effect, Ask):
                result: Any = await self.table.ask(effect)
            else:
                assert state.unresolved is not None
                account = account_of(STREAM, state, effect.digest)
                bodies = await self.log.bodies(effect.offsets)
                result = await self.table.publish(effect, bodies, account=account)
            problem = committing.apply(effect, result)
            assert problem is None, problem
        return committing.outcome

    async def commit(self, number: int, **rows: Sequence[int]) -> dict[str, list[Path]]:
        """Write, complete, decide and publish one checkpoint."""
        files = self.checkpoint(number, **rows)
        self.decide()
        self.resolve(await self.publish())
        return files

    def resolve(self, outcome: Outcome) -> None:
        committed = isinstance(outcome, CutCommitted)
        self.put(EventType.CUT_COMMITTED if committed else EventType.CUT_REVERTED, outcome)

    # --- the tables, as others see and change them ------------------------------------------------

    def ids(self, name: str) -> list[int]:
        """Return the rows of a table, as the library reads them."""
        found = self.library.load_table(f"shop.{name}").scan().to_arrow()
        return sorted(found["id"].to_pylist())

    def decisions(self, name: str) -> list[int]:
        """Return the decisions of the stream in the history of a table, the oldest first."""
        history = ADAPTER.open_maintenance(self.ref(name)).history()
        return [past.decision for past in reversed(history.commits) if past.commit_user == USER]

    def rollback(self, name: str, back: int) -> None:
        """Roll a table back by so many snapshots."""
        table = self.library.load_table(f"shop.{name}")
        found = table.current_snapshot()
        for _ in range(back):
            assert found is not None
            assert found.parent_snapshot_id is not None
            found = table.snapshot_by_id(found.parent_snapshot_id)
        assert found is not None
        with table.manage_snapshots() as changes:
            changes.rollback_to_snapshot(found.snapshot_id)

    def expire(self, name: str) -> None:
        """Let all snapshots of a table but the newest expire."""
        table = self.library.load_table(f"shop.{name}")
        newest = table.metadata.current_snapshot_id
        past = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != newest]
        table.maintenance.expire_snapshots().by_ids(past).commit()

    def append(self, name: str, ids: Sequence[int]) -> None:
        """Append rows as another product."""
        self.library.load_table(f"shop.{name}").append(pa.table({"id": pa.array(ids, pa.int64())}))

    def opened(self) -> ReplayTable:
        """Return the anchor, as a replay opens it."""
        assert isinstance(self._threads, Executor)
        return ReplayTable(self.settings, self._threads, STREAM)  # type: ignore[arg-type]


EMPTY: Final = Start(0, LogState(), -1)
