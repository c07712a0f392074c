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
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import FilesWritten
from sluicegate.events.naming import attempt_of, names_problem
from sluicegate.lakes.memory import MemoryCommitter, MemoryTable
from sluicegate.lakes.port import (
    BadFiles,
    CommitRequest,
    LakeUnavailable,
    Refused,
    TableRefused,
    TableReplaced,
    TableState,
)

LOGGED: Final[Mapping[type[Effect], EventType]] = MappingProxyType(
    {
        AppendPolicy: EventType.STREAM_POLICY,
        AppendDecision: EventType.CUT_DECIDED,
        AppendAbandoned: EventType.CUT_ABANDONED,
        AppendVoided: EventType.CUT_VOIDED,
    }
)
"""What each of the effects that append to the log writes there."""
Written = tuple[Envelope, FilesWritten]
"""A `files.written`."""
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

    def perform(self, effect: Effect, event: Callable[[int], Written]) -> Result:
        """Run an effect of the table; `event` gives what stands at an offset."""
        try:
            match effect:
                case InspectTable():
                    return self.inspect()
                case Ask(decision, digest, table, recorded):
                    return self.ask(decision, digest, table, recorded)
                case CheckFiles(table=table):
                    problems, identity = self._problems(effect, event), self.identity()
                    return FilesChecked(problems) if identity == table else TableReplaced(identity)
                case Publish(decision, digest, head, watermark, offsets):
                    files = [_files(event(offset), effect) for offset in offsets]
                    return self.publish(CommitRequest(decision, digest, head, watermark, files))
        except BadFiles as error:
            return Refused(str(error))
        except TableRefused as error:
            return TableUnfit(str(error))
        except LakeUnavailable as error:
            return Failed(str(error))
        raise TypeError(f"{effect!r} is no effect of the table")

    def _problems(self, effect: CheckFiles, event: Callable[[int], Written]) -> dict[str, str]:
        """Check region by region, as the shell does."""
        problems: dict[str, str] = {}
        for part in effect.parts:
            try:
                self.check([_files(event(offset), effect) for offset in part.offsets])
            except BadFiles as error:
                problems[part.region] = str(error)
        return problems


def _files(event: Written, effect: CheckFiles | Publish) -> FilesWritten:
    """The files of an event. Raises BadFiles if their names are another attempt's."""
    envelope, body = event
    problem = names_problem(attempt_of(envelope), body) if effect.names_checked else None
    if problem is not None:
        raise BadFiles(problem)
    return body


def newer_view(there: StateRecord | None, record: StateRecord) -> StateRecord:
    """What the state store holds after a write: it takes nothing that is older than what it has."""
    return record if there is None or there.applied <= record.applied else there
