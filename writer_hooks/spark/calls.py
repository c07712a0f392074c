"""Calls of a sink within one batch: each stream is written exactly once in every batch of a run."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

from sluicegate.writer_hooks.errors import NotOurs


class State(Enum):
    """State of a call for one stream."""

    ACTIVE = auto()
    COMPLETING = auto()
    """The completion may be in the log."""
    COMPLETED = auto()
    FAILED = auto()


@dataclass(slots=True)
class Call:
    """Call for a batch of one stream."""

    run: str
    batch: int
    state: State = State.ACTIVE


@dataclass(slots=True)
class Calls:
    """The newest call of each stream in this process."""

    _calls: dict[str, Call] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def claim(self, run: str, batch: int, streams: Sequence[str]) -> Iterator[list[Call]]:
        """Allow one call for a batch, and yield its state for each stream, which the caller sets.

        Raises NotOurs before any task if an earlier call of the batch counts, or if the batch before was left
        out.
        """
        with self._lock:
            for stream in streams:
                _require_next(self._calls.get(stream), run, batch)
            calls = {stream: Call(run, batch) for stream in streams}
            self._calls.update(calls)
        try:
            yield list(calls.values())
        finally:
            for call in calls.values():
                if call.state is State.ACTIVE:
                    call.state = State.FAILED


def _require_next(last: Call | None, run: str, batch: int) -> None:
    if last is None or last.run != run:
        return
    if last.batch == batch and last.state is not State.FAILED:
        raise NotOurs(
            f"ForeachBatch was called a second time for batch {batch}. Call it once in each batch, with all "
            "rows of the stream (frame.union). The batch counts with the rows of its first call, also when "
            "the query is started again. So write its other rows once more, for example with a batch job"
        )
    if last.batch < batch and (last.batch, last.state) != (batch - 1, State.COMPLETED):
        raise NotOurs(
            f"ForeachBatch was not called for batch {batch - 1}, or its error was caught, so the rows of "
            "that batch are not in the log. Call it in every batch, also for no rows, and let its errors end "
            "the query. To repeat that batch, reset the region: sluicegate region reset"
        )


CALLS = Calls()
