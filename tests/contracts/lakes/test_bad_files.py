"""The committer half of every table format: files that it must refuse."""

from collections.abc import Callable

import pytest

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.port import Absent, BadFiles
from tests.contracts.lakes.harness import Lake, Stream
from tests.lakes.outcomes import is_refused

Spoiler = Callable[[FilesWritten], FilesWritten]


def _elsewhere(event: FilesWritten) -> FilesWritten:
    return event.model_copy(update={"location": event.location + "-elsewhere"})


def _bare_elsewhere(event: FilesWritten) -> FilesWritten:
    """Return the event of a writer that states no metadata, in another place."""
    bare = tuple(file.model_copy(update={"metadata": b""}) for file in event.files)
    return _elsewhere(event).model_copy(update={"format_version": 0, "files": bare})


def _climbing(event: FilesWritten) -> FilesWritten:
    climbing = event.files[0].model_copy(update={"path": "../" + event.files[0].path})
    return event.model_copy(update={"files": (climbing,)})


def _respelled(event: FilesWritten, before: str) -> FilesWritten:
    """Return the event with its file a second time, under another spelling of its path."""
    (file,) = event.files
    folder, slash, name = file.path.rpartition("/")
    twin = file.model_copy(update={"path": f"{folder}{slash}{before}{name}"})
    return event.model_copy(update={"files": (file, twin)})


def _dotted(event: FilesWritten) -> FilesWritten:
    return _respelled(event, "./")


def _doubled(event: FilesWritten) -> FilesWritten:
    return _respelled(event, "/")


def _returning(event: FilesWritten) -> FilesWritten:
    return _respelled(event, "x/../")


def _newer(event: FilesWritten) -> FilesWritten:
    return event.model_copy(update={"format_version": event.format_version + 1})


def _foreign(event: FilesWritten) -> FilesWritten:
    return event.model_copy(update={"format": "somebody-elses"})


def _twice(event: FilesWritten) -> FilesWritten:
    return event.model_copy(update={"files": event.files * 2})


@pytest.mark.parametrize(
    "spoil", [_elsewhere, _climbing, _dotted, _doubled, _returning, _newer, _foreign, _twice]
)
def test_files_that_cannot_be_committed_are_refused(lake: Lake, spoil: Spoiler) -> None:
    stream = Stream(lake)
    bad = spoil(lake.event([1]))
    stream.refuses(bad)
    assert stream.ask(1) == Absent(None)
    assert lake.ids() == []


@pytest.mark.parametrize("spoil", [_elsewhere, _bare_elsewhere])
def test_the_place_of_files_is_named_if_it_is_another_one(lake: Lake, spoil: Spoiler) -> None:
    with pytest.raises(BadFiles, match=r"the files are in .*-elsewhere, but the table "):
        Stream(lake).committer.check([spoil(lake.event([1]))])


def test_the_same_file_in_two_events_is_refused(lake: Lake) -> None:
    stream = Stream(lake)
    event = lake.event([1])
    twin = event.model_copy()
    with pytest.raises(BadFiles, match="twice"):
        stream.committer.check([event, twin])
    assert is_refused(stream.publish(1, stream.head(1), [event, twin]))
    assert lake.ids() == []
