"""Difference between the settings in force and a changed settings file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pydantic import BaseModel

from sluicegate.coordinator.settings.model import Settings, SettingsError


@dataclass(frozen=True)
class Reload:
    """Settings after a reload, and their difference from those before."""

    settings: Settings
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    """Streams with changed settings."""
    restart: tuple[str, ...]
    """Changed keys that only take effect after a restart."""


def read_settings(load: Callable[[], Settings]) -> Settings | list[str]:
    """Read the settings again; return a list of problems if they cannot be used."""
    try:
        return load()
    except SettingsError as error:
        return list(error.problems)


def plan_reload(held: Settings, wanted: Settings) -> Reload:
    """Combine the streams and tokens of the wanted settings with everything else of the held ones."""
    before, after = held.streams, wanted.streams
    http = held.http.model_copy(update={"token_files": wanted.http.token_files})
    return Reload(
        held.model_copy(update={"streams": after, "http": http}),
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=tuple(sorted(name for name in before.keys() & after.keys() if before[name] != after[name])),
        restart=tuple(
            key
            for name in type(held).model_fields
            if name != "streams"
            for key in _different(name, getattr(held, name), getattr(wanted, name))
            if key != "http.token_files"
        ),
    )


def _different(path: str, held: object, wanted: object) -> Iterator[str]:
    """Yield the keys below a path that have different values."""
    if held == wanted:
        return
    if isinstance(held, BaseModel) and isinstance(wanted, BaseModel):
        for name in type(held).model_fields:
            yield from _different(f"{path}.{name}", getattr(held, name), getattr(wanted, name))
    else:
        yield path
