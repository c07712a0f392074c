"""Facts of streams for listeners, and the check of all listeners at the start."""

from collections.abc import Iterator

from sluicegate.coordinator.settings.model import Settings, StreamSettings
from sluicegate.coordinator.settings.sources import SettingsError
from sluicegate.lakes.port import TableRefused
from sluicegate.lakes.registry import adapter
from sluicegate.listeners.port import ListenerRefused, Stream
from sluicegate.listeners.registry import listener_type


def stream_of(name: str, settings: StreamSettings) -> Stream:
    """Return the facts of a stream. Raises TableRefused."""
    opened = adapter(settings.format)
    return Stream(
        name=name,
        format=settings.format,
        table=opened.parse_table(settings.table, settings.adapter_options()),
        adapter=opened,
        commit_user=settings.commit_user or f"sluicegate-{name}",
        partial=settings.partial == "allow",
    )


def refusals(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yield stream, listener and reason of every listener that makes no sense for its stream."""
    for name, stream in settings.streams.items():
        if not stream.listeners:
            continue
        try:
            facts = stream_of(name, stream)
        except TableRefused:
            continue  # the stream itself reports it
        for listener, own in stream.listeners.items():
            try:
                listener_type(own.type).check(own.options, facts)
            except ListenerRefused as error:
                yield name, listener, str(error)


def refuse_senseless(settings: Settings) -> Settings:
    """Return the settings. Raises SettingsError if a listener makes no sense for its stream."""
    found = [f"streams.{stream}.listeners.{listener}: {why}" for stream, listener, why in refusals(settings)]
    if found:
        raise SettingsError(found)
    return settings
