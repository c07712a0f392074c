"""The way of one `files.written`, from the consumer to the pending checkpoints, through few files.

The service runs as it is, with a real broker. A trace of the calls in its event loop begins where `getmany`
of the consumer returns the message, and ends where `PendingCheckpoints.add_part` gets it. The message enters
a file of the product when it is returned to the file, or when a function of another file calls into it. Calls
into one file that follow one another enter it once.

Three kinds of calls enter no file:

- A property of data: of a tuple, an enumeration, a data class or a model. Constructors of data are no
  functions of our files. A method of data enters its file.
- A failpoint. It gets the name of a place, and nothing of the message.
- The question where the consumer reads on. It gets the consumer, and nothing of the message.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from enum import Enum
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from pydantic import BaseModel

from sluicegate.coordinator.core import log
from sluicegate.coordinator.core.state import RegionState
from sluicegate.events.models import FilesWritten
from sluicegate.failpoints.points import hit
from sluicegate.kafka.internals import positions
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job
from tests.integration.waiting import until

PACKAGES: Final = Path(log.__file__).parents[2]
MOST: Final = 8
"""Files from the consumer to the pending checkpoints. It only falls."""
HANDED_OVER: Final = AIOKafkaConsumer.getmany.__code__
ARRIVED: Final = log.PendingCheckpoints.add_part.__code__
WITHOUT_MESSAGE: Final = (hit.__code__, positions.__code__)


def file_of(code: CodeType) -> str | None:
    """Return the file of a function of the product, below its packages; None for any other function."""
    path = Path(code.co_filename)
    return str(path.relative_to(PACKAGES)) if path.is_relative_to(PACKAGES) else None


def files_above(frame: FrameType) -> Iterator[str]:
    """Yield the files of the product on the stack above a frame, the nearest first."""
    above = frame.f_back
    while above is not None:
        if (name := file_of(above.f_code)) is not None:
            yield name
        above = above.f_back


def is_property_of_data(frame: FrameType) -> bool:
    """True if a frame is the getter of a property of data."""
    code = frame.f_code
    owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount == 1 else None
    if not isinstance(owner, tuple | Enum | BaseModel) and not is_dataclass(owner):
        return False
    found = getattr(type(owner), code.co_name, None)
    return isinstance(found, property) and getattr(found.fget, "__code__", None) is code


class Way:
    """The files that one message enters, in order."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.records = 0
        """Number of records that the consumer handed over at once."""
        self.arrived = False

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note one event of the interpreter, as `sys.setprofile` reports it."""
        if not self.files:
            # A coroutine that waits returns, too: it returns a future to the event loop.
            ended = event == "return" and frame.f_code is HANDED_OVER and isinstance(argument, dict)
            if ended and argument:
                self.records = sum(map(len, argument.values()))
                self.files = [name for name, _ in groupby(files_above(frame))]
        elif event == "call" and not self.arrived:
            self._called(frame)

    def _called(self, frame: FrameType) -> None:
        name = file_of(frame.f_code)
        if name is None or frame.f_code in WITHOUT_MESSAGE or is_property_of_data(frame):
            return
        if name != next(files_above(frame), None) and name != self.files[-1]:
            self.files.append(name)
        self.arrived = frame.f_code is ARRIVED


@contextmanager
def profiled(note: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Report the calls of this thread, in which the event loop runs."""
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


async def way_of(job: Job, body: FilesWritten) -> Way:
    """Publish one event, and trace its way."""
    way = Way()
    with profiled(way.note):
        await job.written(body)
        await until(lambda: way.arrived)
    return way


async def test_a_files_written_enters_few_files_and_none_of_them_twice(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        await job.register()
        # The first event of a checkpoint, and one that follows it.
        for body in (job.write_files([1]), job.write_files([2])):
            way = await way_of(job, body)
            assert way.records == 1
            assert len(set(way.files)) == len(way.files), way.files
            assert len(way.files) <= MOST, way.files
            assert len(way.files) == MOST, f"fewer files than before: set MOST to {len(way.files)}"


def test_each_call_of_a_method_of_data_enters_its_file_and_a_property_does_not() -> None:
    region, way = RegionState(), Way()
    way.files.append("before")
    with profiled(way.note):
        assert not region.covers("q1", 1)
        assert region.live_incarnation is None
        assert not region.covers("q1", 2)
    assert way.files == ["before", "coordinator/core/state.py"]
