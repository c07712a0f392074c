"""Types of listeners by name, found through entry points; each is imported when it is first asked for."""

from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from sluicegate.listeners.port import PORT_VERSION, ListenerRefused, ListenerType

GROUP: Final = "sluicegate.listeners"


@cache
def listener_type(name: str) -> ListenerType[Any]:
    """Return a type of listeners. Raises ListenerRefused with the way out when there is none."""
    found = {each.name: each for each in entry_points(group=GROUP)}
    entry = found.get(name)
    if entry is None:
        raise ListenerRefused(
            f"unknown type {name!r}; this release knows: {', '.join(sorted(found))}. Set `type` to one, or "
            "install the package that has it"
        )
    package = entry.dist.name if entry.dist is not None else entry.value
    try:
        loaded = entry.load()
    except Exception as error:
        raise ListenerRefused(
            f"the type {name} of the package {package} cannot be loaded: {type(error).__name__}: {error}. "
            "Upgrade that package"
        ) from error
    version = getattr(loaded, "port_version", None)
    if version != PORT_VERSION or not isinstance(loaded, ListenerType):
        raise ListenerRefused(
            f"the type {name} of the package {package} is not made for version {PORT_VERSION} of the port. "
            f"Install releases of {package} and sluicegate that fit together"
        )
    return loaded
