"""Settings of the listener that marks partitions as done."""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sluicegate.listeners.durations import Duration, Length, Zone, milliseconds
from sluicegate.listeners.http_report import ReportOptions, check_pair
from sluicegate.listeners.intervals import Interval, parse_interval
from sluicegate.listeners.mark_done.formats import Parse, default_parser, parser
from sluicegate.listeners.mark_done.policy import Terms, Trigger

ActionName = Literal["success-file", "done-partition", "mark-event", "http-report", "custom"]
_CUSTOM: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def _format(text: str) -> str:
    parser(text)
    return text


def _custom(text: str) -> str:
    if not _CUSTOM.fullmatch(text):
        raise ValueError(f"{text!r} names no function. Write package.module:function")
    return text


class MarkDoneOptions(ReportOptions):
    """Settings of one listener of the type `mark-done`."""

    trigger: Trigger = "watermark"
    """`watermark`: done when the watermark of a cut has passed the end of the partition and the delay.
    `processing-time`: done when the clock has passed the end, and the newest files, by the idle time."""
    delay: Duration = "0 s"
    """With `watermark`: the time after the end of the partition."""
    idle_time: Duration | None = None
    """With `processing-time`: the time without new files, after the end of the partition."""
    settle_time: Duration = "0 s"
    """With `watermark`: the time without new files after which late data is marked; 0 s: with its commit."""
    hold_for_fallbacks: bool = True
    """With `processing-time`: mark nothing while the newest commit left a region behind."""
    mark_when_drained: bool = False
    """Mark everything that is open when a drain of the stream is complete."""
    interval: Length | None = None
    """Length of a partition whose time comes from column values. A transform of Iceberg has its own."""
    timestamp_pattern: str | None = None
    """Text with `$column` in place of values, such as `$year-$month-01`; none: the only column."""
    timestamp_formatter: Annotated[str, AfterValidator(_format)] | None = None
    """Format of that text, such as `yyyyMMdd`; none: a date, or a date and a time."""
    time_zone: Zone = "UTC"
    """Time zone of the partition values."""
    time_field: str | None = None
    """Partition field that has the time, if several could have it."""
    actions: Annotated[tuple[ActionName, ...], Field(min_length=1)]
    """Actions for each mark, in this order: `success-file`, `mark-event`, `http-report`, `custom`."""
    custom: Annotated[str, AfterValidator(_custom)] | None = None
    """Function of the action `custom`, as `package.module:function`."""
    max_open_partitions: Annotated[int, Field(ge=1, le=15_000)] = 10_000
    """Most partitions without a mark. With more, the listener stops, and loses nothing.

    15,000 fit into a record of the size that Kafka takes by default.
    """

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.trigger == "processing-time" and self.idle_time is None:
            raise ValueError('the trigger processing-time needs idle_time, such as idle_time = "1 h"')
        if self.trigger == "watermark" and self.idle_time is not None:
            raise ValueError("idle_time belongs to the trigger processing-time. Set delay, or that trigger")
        if self.trigger == "processing-time" and (milliseconds(self.delay) or milliseconds(self.settle_time)):
            raise ValueError("delay and settle_time belong to the trigger watermark. Set idle_time instead")
        check_pair(self.actions, "custom", "custom", self.custom)
        return self

    @property
    def terms(self) -> Terms:
        """Return the settings of the decision."""
        by_watermark = self.trigger == "watermark"
        return Terms(
            trigger=self.trigger,
            delay=milliseconds(self.delay if by_watermark else self.idle_time or "0 s"),
            settle=milliseconds(self.settle_time),
            hold=self.hold_for_fallbacks,
            drained=self.mark_when_drained,
            limit=self.max_open_partitions,
        )

    @property
    def length(self) -> Interval | None:
        """Return the length of a partition."""
        return None if self.interval is None else parse_interval(self.interval)

    @property
    def parse(self) -> Parse:
        """Return the parser of the time of a partition."""
        return default_parser if self.timestamp_formatter is None else parser(self.timestamp_formatter)
