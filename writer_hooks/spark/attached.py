"""State that `attach` leaves in the driver's process, for a sink that runs there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol
from weakref import WeakValueDictionary

from sluicegate.writer_hooks.spark.registry import Registry

StreamsBegan = Callable[[str, Sequence[str]], None]
"""Function that learns the keys of a query's streams, which the registry has from now on."""


class BatchFunction(Protocol):
    """Sink of this process whose function Spark calls, as `ForeachBatch`."""

    def options_at(self, query: str, location: str) -> Mapping[str, Mapping[str, str]]:
        """Return the options of each stream by its key in the registry; empty for another location."""
        ...


@dataclass(slots=True)
class Attached:
    """Sessions of this process that `attach` has prepared."""

    registry: Registry | None = None
    """None: no session is attached."""
    listener_state: Callable[[int], Mapping[str, str]] | None = None
    """Function of the state of listeners. The first session of the process that has one decides."""
    began: list[StreamsBegan] = field(default_factory=list)
    """Listeners of the sessions. Each ignores queries of other sessions."""
    _functions: WeakValueDictionary[int, BatchFunction] = field(default_factory=WeakValueDictionary)
    """Sinks of this process that still exist, in the order in which they were made."""
    _number: "count[int]" = field(default_factory=count)

    def made(self, function: BatchFunction) -> None:
        """Note a sink. A query of Spark does not name the one that it calls."""
        self._functions[next(self._number)] = function

    def options_at(self, query: str, location: str) -> Mapping[str, Mapping[str, str]]:
        """Return the options of the sink of a query, by the keys of its streams; empty if it is not known.

        `location` is the checkpoint location that Spark uses. The newest sink of this location counts.
        """
        if self.registry is None:
            return {}
        for _, function in sorted(self._functions.items(), reverse=True):
            if options := function.options_at(query, location):
                return options
        return {}


ATTACHED = Attached()
