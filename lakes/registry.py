"""Table formats by name, found through entry points; each adapter is imported when it is first asked for.

A format is an entry point of the group `sluicegate.lakes`: its name is the name of the format, its object is
an `Adapter`. So a package of a third party can add one.
"""

import difflib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from sluicegate.installation import install_command
from sluicegate.lakes.port import PORT_VERSION, Adapter, TableRefused

GROUP: Final = "sluicegate.lakes"
DEFAULT_FORMAT: Final = "paimon"
"""Format of a stream, or of a writing job, that names none."""
_OTHERWISE: Final = f". {DEFAULT_FORMAT} is the default: if the table has another format, set `format`"


def install_line(*extras: str) -> str:
    """Return the command that installs this package with the default format, and with these extras."""
    return install_command(DEFAULT_FORMAT, *extras)


def format_names() -> list[str]:
    """Return the names of the formats that are installed, in order."""
    return sorted(_formats())


def adapter(name: str) -> Adapter:
    """Return the adapter of a table format. Raises TableRefused with the way out when there is none."""
    return _loaded(name)


@cache
def _loaded(name: str) -> Adapter:
    found = _formats().get(name)
    if found is None:
        names = format_names()
        close = difflib.get_close_matches(name.lower(), names, n=1)
        hint = f". Did you mean {close[0]}?" if close else ". Set `format` to one"
        raise TableRefused(f"unknown table format {name!r}; this release knows: {', '.join(names)}{hint}")
    if len(found) > 1:
        packages = " and ".join(sorted(_package(each) for each in found))
        raise TableRefused(f"the table format {name} is given by the packages {packages}. Remove one of them")
    (entry,) = found
    package = _package(entry)
    try:
        loaded = entry.load()
    except ImportError as error:
        otherwise = _OTHERWISE if name == DEFAULT_FORMAT else ""
        raise TableRefused(
            f"the table format {name} needs a package that is not installed ({error.name}); "
            f"install it with: {_install(entry)}{otherwise}"
        ) from error
    except Exception as error:
        # One stream's format must not keep the service from starting for the others.
        raise TableRefused(
            f"the table format {name} of the package {package} cannot be loaded: {type(error).__name__}: "
            f"{error}. Upgrade that package"
        ) from error
    problem = _problem(name, loaded)
    if problem is not None or not isinstance(loaded, Adapter):
        raise TableRefused(
            f"the table format {name} of the package {package} {problem}. Install releases of {package} and "
            "sluicegate that fit together"
        )
    return loaded


@cache
def _formats() -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of each format; the search reads files of every installed package."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for each in entry_points(group=GROUP):
        found[each.name] = (*found.get(each.name, ()), each)
    return found


def _problem(name: str, loaded: object) -> str | None:
    """Say why the object of an entry point is not an adapter for this release; None if it is one."""
    version = getattr(loaded, "port_version", None)
    if version is not None and version != PORT_VERSION:
        return f"implements version {version} of the port instead of {PORT_VERSION}"
    if not isinstance(loaded, Adapter):
        return f"gives an object of the type {type(loaded).__name__}, which is not an adapter"
    return None if loaded.name == name else f"gives the adapter of another format, {loaded.name}"


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def _install(entry: EntryPoint) -> str:
    """Return the command that installs a format: its package, with the extra of its name if it has one."""
    extras = (entry.dist.metadata.get_all("Provides-Extra") or []) if entry.dist is not None else []
    package = _package(entry)
    if package == "sluicegate" and entry.name in extras:
        return install_command(entry.name)
    return f'pip install "{package}[{entry.name}]"' if entry.name in extras else f"pip install {package}"
