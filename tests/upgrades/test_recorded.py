"""Recorded logs of each release, replayed by the newest code: the same cuts, from any state record."""

from functools import cache
from pathlib import Path

import pytest

from sluicegate.coordinator.core.state_record import StateRecord, decode_record, read_key
from sluicegate.coordinator.replay.decisions import Start
from sluicegate.events.codec import Flaw
from sluicegate.events.notifications import read_notification
from tests.upgrades.recording import FOLDER, Recording, fold, in_short, load

RELEASES = sorted(FOLDER.glob("*.xz"))
MOST = 300_000
"""Bytes of a recording."""

recorded = cache(load)


def homes(recording: Recording) -> dict[str, int]:
    """Return the partition of each stream."""
    found = {}
    for each in recording.of("state"):
        record = decode_record((each.key or b"").decode(), each.value or b"")
        if isinstance(record, StateRecord) and record.state.partition is not None:
            found[record.stream] = record.state.partition
    return found


@pytest.mark.slow
def test_there_is_a_recording() -> None:
    assert RELEASES
    assert all(path.stat().st_size <= MOST for path in RELEASES)


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.stem)
def test_the_cuts_are_those_of_the_release(path: Path) -> None:
    recording = recorded(path)
    assert len(recording.cuts) > 1
    for stream, partition in homes(recording).items():
        found, _ = fold(recording.of("events"), stream, partition)
        assert [in_short(each) for each in found] == recording.cuts[stream]
    cuts = [cut for each in recording.cuts.values() for cut in each]
    assert any(each["reverted"] for each in cuts)
    assert any(each["fallbacks"] for each in cuts)


@pytest.mark.slow
@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.stem)
def test_each_state_record_is_readable_and_the_log_continues_from_it(path: Path) -> None:
    recording, seen = recorded(path), 0
    events = recording.of("events")
    for each in recording.of("state"):
        stream, _ = read_key((each.key or b"").decode())
        record = decode_record(stream, each.value or b"")
        assert isinstance(record, StateRecord), record
        home = homes(recording)[stream]
        assert record.state == fold(events, stream, home, upto=record.applied)[1]
        whole, state = fold(events, stream, home)
        rest, continued = fold(events, stream, home, Start(record.low_water, record.state, record.applied))
        assert continued == state
        assert [in_short(one) for one in rest] == [in_short(one) for one in whole][len(whole) - len(rest) :]
        seen += 1
    assert seen > len(recording.cuts)


@pytest.mark.slow
@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.stem)
def test_each_notification_is_readable(path: Path) -> None:
    found = [read_notification(each.headers, each.value) for each in recorded(path).of("commits")]
    assert found
    assert not [each for each in found if isinstance(each, Flaw)]
