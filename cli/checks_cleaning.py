"""Check of `sluicegate check` that cleaners of other products spare files that wait for their commit."""

import math
import time
from typing import Final

from sluicegate.cli.finding import Finding, fine, warning
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.observe.messages import duration
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.lakes.capabilities import Cleaner, NamesCleaner
from sluicegate.lakes.port import TableMaintenance

_SHARE: Final = 0.5
"""Files that have waited for this share of a cleaner's age are in danger."""


def check_cleaning(
    stream: str, settings: StreamSettings, maintenance: TableMaintenance, record: StateRecord | None
) -> list[Finding]:
    """Compare the age of a table's cleaner with the files of a stream. Raises LakeUnavailable; blocks."""
    if not isinstance(maintenance, NamesCleaner):
        return []
    name, cleaner = f"table of {stream}, cleaning", maintenance.cleaner()
    if cleaner is None:
        return [fine(name, "the table forbids that other products delete files")]
    waits = _longest_wait(record)
    if waits > cleaner.age * _SHARE:
        return [warning(name, _pending(stream, cleaner, waits))]
    if cleaner.age < settings.longest_wait:
        return [warning(name, _shorter(stream, settings, cleaner))]
    return [fine(name, f"{_spares(cleaner)}, and files wait for at most {duration(settings.longest_wait)}")]


def _longest_wait(record: StateRecord | None) -> float:
    """Return the seconds for which the oldest file of a stream has waited for its commit."""
    since = [each.since for each in record.waiting.values()] if record is not None else []
    return time.time() - min(since) / 1000 if since else 0.0


def _pending(stream: str, cleaner: Cleaner, waits: float) -> str:
    return (
        f"files have waited for their commit for {duration(waits)}, and {_spares(cleaner)}: it would delete "
        f"them. Do not run it before they are committed, or {_remedy(cleaner, waits / _SHARE)}. Why they "
        f"wait: sluicegate status --stream {stream}"
    )


def _shorter(stream: str, settings: StreamSettings, cleaner: Cleaner) -> str:
    return (
        f"files may wait for their commit for {duration(settings.longest_wait)} "
        f"(streams.{stream}.longest_wait), but {_spares(cleaner)}: it can delete files of pending "
        f"checkpoints. To keep them, {_remedy(cleaner, settings.longest_wait)}"
    )


def _spares(cleaner: Cleaner) -> str:
    source = cleaner.setting or "its default"
    return f"{cleaner.name} spares files that are younger than {duration(cleaner.age)} ({source})"


def _remedy(cleaner: Cleaner, seconds: float) -> str:
    return cleaner.remedy.format(hours=math.ceil(seconds / 3_600))
