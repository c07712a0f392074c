"""State that `attach` leaves in the driver's process, for a sink that runs there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sluicegate.writer_hooks.spark.registry import Registry

StreamsBegan = Callable[[str, Sequence[str]], None]
"""Function that learns the keys of a query's streams, which the registry has from now on."""


@dataclass(slots=True)
class Attached:
    """Sessions of this process that `attach` has prepared."""

    registry: Registry | None = None
    """None: no session is attached."""
    listener_state: Callable[[int], Mapping[str, str]] | None = None
    """Function of the state of listeners. The first session of the process that has one decides."""
    began: list[StreamsBegan] = field(default_factory=list)
    """Listeners of the sessions. Each ignores queries of other sessions."""


ATTACHED = Attached()
