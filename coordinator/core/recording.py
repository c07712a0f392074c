"""The making of state records: LogState and TableProgress as of one offset, and the data of other parts."""

from dataclasses import dataclass

from sluicegate.coordinator.core.activity import Activity
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.outbox import Outbox
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state_record import Condition, StateRecord, TableProgress, Waiting
from sluicegate.events.problems import Problem


@dataclass(slots=True)
class Recorder:
    """The parts of one stream's machine that a state record contains."""

    replica: Replica
    table: TableProgress
    outbox: Outbox
    activity: Activity
    refused: dict[str, Problem]
    applied_id: str | None
    """Id of the event at the newest applied offset."""

    def record(self, position: int, conditions: list[Condition]) -> StateRecord:
        """Return the state record, if everything before `position` was read."""
        state, heard = self.replica.state, self.activity.heard
        return StateRecord(
            stream=self.replica.log.stream,
            applied=self.replica.applied,
            applied_id=self.applied_id,
            low_water=self.replica.log.low_water(position),
            # Effects in flight keep the record, and the state changes meanwhile.
            state=state.model_copy(deep=True),
            table=self.table.model_copy(),
            due=list(self.outbox.due),
            conditions=conditions,
            announced=dict(self.outbox.announced),
            stalls=self.outbox.stalls_announced,
            refused=dict(self.refused),
            heard={name: at for name, at in heard.items() if name in state.regions},
            intervals=dict(self.activity.intervals),
            waiting=_waiting(self.replica.log),
        )


def _waiting(log: Log) -> dict[str, Waiting]:
    """Return, by region, the files that are in no decision."""
    found: dict[str, Waiting] = {}
    for name, pending in log.pending.items():
        parts = [part for each in pending.checkpoints.values() for part in each.parts.values()]
        if parts:
            since = min(each.first_time for each in pending.checkpoints.values())
            files, rows = sum(each.files for each in parts), sum(each.rows for each in parts)
            found[name] = Waiting(files=files, rows=rows, since=since)
    return found
