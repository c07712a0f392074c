"""Facts of streams for listeners, and the check of all listeners at the start."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sluicegate.coordinator.settings.model import Settings, StreamSettings
from sluicegate.coordinator.settings.sources import SettingsError
from sluicegate.lakes.capabilities import OpensGroups
from sluicegate.lakes.port import LakeError, TableRef, TableRefused
from sluicegate.lakes.registry import adapter
from sluicegate.listeners.port import (
    ChecksTable,
    ListenerRefused,
    ListenerType,
    ListenerUnready,
    Options,
    Stream,
    listener_type,
)


class UnfitTable(Exception):
    """The table does not fit the settings of a listener, or cannot be read. The text has the way out."""


class UnreadableTable(UnfitTable):
    """The table cannot be read now."""


def check_table(kind: ListenerType[Any], options: Options, facts: Stream) -> None:
    """Compare the settings of a listener with its table, if its type does that. It blocks.

    Raises UnfitTable, UnreadableTable.
    """
    if not isinstance(kind, ChecksTable):
        return
    try:
        kind.check_table(options, facts)
    except ListenerRefused as error:
        raise UnfitTable(str(error)) from error
    except LakeError as error:
        raise UnreadableTable(str(error)) from error


def stream_of(name: str, settings: StreamSettings, only: str | None = None) -> Stream:
    """Return the facts of a stream for a listener. Raises TableRefused.

    `only`: name of the further table that the listener belongs to.
    """
    opened = adapter(settings.format)
    table = opened.parse_table(settings.table, settings.adapter_options())
    further: dict[str, TableRef] = {}
    if settings.tables:
        if not isinstance(opened, OpensGroups):
            raise TableRefused(f"tables of the format {settings.format} cannot be changed together")
        further = {each: opened.named(table, own.identifier) for each, own in settings.tables.items()}
    return Stream(
        name=name,
        format=settings.format,
        table=table if only is None else further[only],
        adapter=opened,
        commit_user=settings.commit_user or f"sluicegate-{name}",
        partial=settings.partial == "allow",
        tables=further if only is None else {},
    )


def found_stream(name: str, settings: StreamSettings, only: str | None) -> Stream:
    """Return the same, with the location that the catalog has for a further table. It blocks.

    Raises TableRefused or LakeUnavailable.
    """
    facts = stream_of(name, settings, only)
    if only is None or not isinstance(facts.adapter, OpensGroups):
        return facts
    anchor = facts.adapter.parse_table(settings.table, settings.adapter_options())
    return replace(facts, table=facts.adapter.further(anchor, settings.tables[only].identifier))


def refusals(
    settings: Settings, *, tables: bool = False, unready: bool = True
) -> Iterator[tuple[str, str, str]]:
    """Yield stream, listener and reason of every listener that makes no sense for its stream.

    `tables`: compare the settings with the tables, too. That blocks. `unready`: include those that only wait
    for a file or a package.
    """
    for name, stream in settings.streams.items():
        if not stream.listeners:
            continue
        for listener, own in stream.listeners.items():
            try:
                find = found_stream if tables else stream_of
                facts = find(name, stream, own.table)
            except LakeError:
                continue  # the check of the stream's tables reports it
            try:
                kind = listener_type(own.type)
                kind.check(own.options, facts)
                if tables:
                    check_table(kind, own.options, facts)
            except UnreadableTable:
                continue  # the check of the stream's table reports it
            except (ListenerRefused, UnfitTable) as error:
                if unready or not isinstance(error, ListenerUnready):
                    yield name, listener, str(error)


def refuse_senseless(settings: Settings, *, unready: bool = True) -> Settings:
    """Return the settings. Raises SettingsError if a listener makes no sense for its stream.

    `unready` as in `refusals`: at a start, a missing file keeps its own listener waiting, and no commit.
    """
    found = [
        f"streams.{stream}.listeners.{listener}: {why}"
        for stream, listener, why in refusals(settings, unready=unready)
    ]
    if found:
        raise SettingsError(found)
    return settings
