"""The state record: LogState and TableProgress as of one offset, with the notifications that are due."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from pydantic import ValidationInfo, field_validator

from sluicegate.coordinator.core.state import Light, LogState
from sluicegate.coordinator.core.table import TableProgress
from sluicegate.events.models import CutAbandoned, CutReverted
from sluicegate.events.notifications import (
    NOTIFICATION_BODIES,
    Committed,
    IncarnationsEnded,
    NotificationType,
    RegistrationAnswered,
    SavepointTaken,
    Stalled,
    StreamAdopted,
)
from sluicegate.events.problems import Problem

RECORD_VERSION: Final = 1

NotificationBody = (
    RegistrationAnswered
    | Committed
    | CutAbandoned
    | CutReverted
    | SavepointTaken
    | IncarnationsEnded
    | Stalled
    | StreamAdopted
)


class Due(Light):
    """A notification that follows the record it is part of. A repetition after a crash has the same id."""

    id: str
    type: NotificationType
    region: str = ""
    incarnation: str = ""
    body: NotificationBody

    @field_validator("body", mode="before")
    @classmethod
    def _by_type(cls, value: object, info: ValidationInfo) -> object:
        kind = info.data.get("type")
        return NOTIFICATION_BODIES[kind].model_validate(value) if kind and isinstance(value, dict) else value


Kind = Literal["stall", "pause", "wait", "retry", "refusal"]


class Condition(Light):
    """Something that keeps a stream, or one region of it, from progress."""

    kind: Kind
    """stall: somebody must act. wait: something must arrive. retry: an effect fails and is tried again."""
    problem: Problem
    retry_in: int | None = None
    """Milliseconds until the next try, as of the record; None: nothing is tried."""


class Waiting(Light):
    """Everything of one region that is in no decision."""

    files: int
    rows: int
    since: int
    """Append time of the first event of the oldest checkpoint, in milliseconds."""


class StateRecord(Light):
    """The value of a stream's record in the compacted state topic."""

    version: int = RECORD_VERSION
    stream: str
    applied: int
    """Every record at or before this offset is in `state`; -1: none is."""
    applied_id: str | None = None
    """Id of the event at that offset: another one there means that the topic was created again."""
    commit_user: str | None = None
    adoption: str = ""
    """Id of the adoption that the record follows; empty: of none. The log before it is of another course."""
    low_water: int
    """The smallest offset that a recovery reads."""
    state: LogState
    table: TableProgress = TableProgress()
    due: Sequence[Due] = ()
    conditions: Sequence[Condition] = ()
    """For status; nothing is decided by them."""
    announced: Mapping[str, Problem] = {}
    """By scope (a region, or empty), the stall that was announced last."""
    stalls: int = 0
    """Number of stalls, and of ends of stalls, that were announced. Repetitions differ in it."""
    refused: Mapping[str, Problem] = {}
    """By region, the refusal of its newest registration; for status."""
    heard: Mapping[str, int] = {}
    """By region, the append time of the newest event of its driver, in milliseconds."""
    intervals: Mapping[str, int] = {}
    """By region, the milliseconds between its heartbeats."""
    waiting: Mapping[str, Waiting] = {}

    def is_of_course(self, newest: "StateRecord") -> bool:
        """True if a log that is read from this record leads to the newest one.

        An adoption writes its base record first. If it ends there, the stream continues without it.
        """
        return self.adoption == newest.adoption
