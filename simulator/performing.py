"""Effects of the core, performed on a table in memory."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from sluicegate.coordinator.core.effects import (
    AppendAbandoned,
    AppendDecision,
    AppendPolicy,
    AppendVoided,
    Ask,
    CheckFiles,
    Effect,
    Failed,
    FilesChecked,
    InspectTable,
    Publish,
    Result,
    TableUnfit,
)
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.events.envelope import EventType
from sluicegate.events.models import FilesWritten
from sluicegate.lakes.memory import MemoryCommitter, MemoryTable
from sluicegate.lakes.port import CommitRequest, LakeUnavailable, TableRefused, TableReplaced, TableState

LOGGED: Final[Mapping[type[Effect], EventType]] = MappingProxyType(
    {
        AppendPolicy: EventType.STREAM_POLICY,
        AppendDecision: EventType.CUT_DECIDED,
        AppendAbandoned: EventType.CUT_ABANDONED,
        AppendVoided: EventType.CUT_VOIDED,
    }
)
"""What each of the effects that append to the log writes there."""
OF_THE_TABLE: Final = (InspectTable, Ask, CheckFiles, Publish)


class Door(MemoryCommitter):
    """A committer that finds whatever table is there by now."""

    joined: str | None = None

    def find(self, table: MemoryTable, joined: str | None) -> None:
        """Stand before this table from now on; `joined` is why it makes all writers one region."""
        self._table = table
        self.joined = joined

    def inspect(self) -> TableState:
        """As any committer, with what is said of the table."""
        return replace(super().inspect(), joined=self.joined)

    def perform(self, effect: Effect, body: Callable[[int], FilesWritten]) -> Result:
        """Run an effect of the table; `body` gives the body at an offset. Raises BadFiles."""
        try:
            match effect:
                case InspectTable():
                    return self.inspect()
                case Ask(decision, digest, table, recorded):
                    return self.ask(decision, digest, table, recorded)
                case CheckFiles(parts, _, table):
                    self.check([body(offset) for part in parts for offset in part.offsets])
                    identity = self.identity()
                    return FilesChecked({}) if identity == table else TableReplaced(identity)
                case Publish(decision, digest, head, watermark, offsets, _):
                    files = [body(offset) for offset in offsets]
                    return self.publish(CommitRequest(decision, digest, head, watermark, files))
        except TableRefused as error:
            return TableUnfit(str(error))
        except LakeUnavailable as error:
            return Failed(str(error))
        raise TypeError(f"{effect!r} is no effect of the table")


def newer_view(there: StateRecord | None, record: StateRecord) -> StateRecord:
    """What the state store holds after a write: it takes nothing that is older than what it has."""
    return record if there is None or there.applied <= record.applied else there
