"""Settings of the listener that marks partitions as done."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

import aiohttp
from pydantic import AfterValidator, Field, SecretStr, model_validator

from sluicegate.listeners.http import Answer, Url, post
from sluicegate.listeners.intervals import Duration, Interval, Length, Zone, milliseconds, parse_interval
from sluicegate.listeners.mark_done.formats import Parse, default_parser, parser
from sluicegate.listeners.mark_done.policy import Terms, Trigger
from sluicegate.listeners.port import Done, Failed, Options, Result

# Reports to an HTTP server, in the form of those that Paimon sends of its marks.

_SHOWN: Final = 200


class ReportOptions(Options):
    """Settings of the action `http-report`, beside those of the type."""

    actions: tuple[str, ...]
    http_url: Url | None = None
    """Address of `http-report`."""
    http_params: str = ""
    """Text that each report contains as `params`."""
    http_headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Further headers of each report. Values are not shown."""
    http_timeout: Annotated[float, Field(gt=0, le=3_600)] = 30.0
    """Seconds for one report."""

    @model_validator(mode="after")
    def _check_actions(self) -> Self:
        if len({*self.actions}) < len(self.actions):
            raise ValueError("actions has one twice. Name each once")
        check_pair(self.actions, "http-report", "http_url", self.http_url)
        return self


def check_pair(actions: tuple[str, ...], action: str, name: str, value: object) -> None:
    """Raise ValueError if only one of an action and its setting is there."""
    if action in actions and value is None:
        raise ValueError(f"the action {action} needs {name}. Set it, or remove the action")
    if action not in actions and value is not None:
        raise ValueError(f"{name} is set, and actions lacks {action}. Add the action, or remove {name}")


async def send_report(
    http: aiohttp.ClientSession, options: ReportOptions, key: str, fields: Mapping[str, object]
) -> Result:
    """Send a report with the params and the headers of the settings, under an idempotency key.

    An answer of 200 to 299 is done, unless its JSON has a `result` other than SUCCESS.
    """
    headers = {name: value.get_secret_value() for name, value in options.http_headers.items()}
    headers |= {"Content-Type": "application/json", "Idempotency-Key": key}
    body = json.dumps({"params": options.http_params, **fields}).encode()
    answer = await post(http, options.http_url or "", body, headers, options.http_timeout)
    if not isinstance(answer, Answer):
        return answer
    if not answer.is_success:
        return Failed(
            f"the server answered {answer.status}: {answer.text[:_SHOWN]}. Correct http_url, http_headers or "
            "the server"
        )
    try:
        found = json.loads(answer.text)
    except ValueError:
        return Done()
    result = found.get("result") if isinstance(found, dict) else None
    if isinstance(result, str) and result.upper() != "SUCCESS":
        return Failed(f"the server answered with the result {result[:_SHOWN]!r} instead of SUCCESS")
    return Done()


ActionName = Literal["success-file", "mark-event", "http-report", "custom"]
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
