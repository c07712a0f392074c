"""Settings of the listener that makes tags."""

import re
from typing import Annotated, Self

from pydantic import AfterValidator, model_validator

from sluicegate.listeners.durations import Duration, Zone, milliseconds
from sluicegate.listeners.port import Options
from sluicegate.listeners.tags.periods import FORMATS, Every, check_name, check_pattern


def _savepoint_name(text: str) -> str:
    if "{name}" not in text and "{decision}" not in text:
        raise ValueError("must contain {name} or {decision}, so that savepoints have tags of their own")
    rest = re.sub(r"\{(name|decision)\}", "x", text)
    if "{" in rest or "}" in rest:
        raise ValueError("has only the placeholders {name} and {decision}")
    check_name(rest)
    return text


class TagsOptions(Options):
    """Settings of one listener of the type `tags`."""

    period: Every | None = None
    """Period of the tags: `hourly`, `daily` or `monthly`; none: only savepoints have tags."""
    name: str | None = None
    """Format of the names, with the start of the period, such as `'day-'yyyy-MM-dd`. None: `yyyy-MM-dd-HH`,
    `yyyy-MM-dd` or `yyyy-MM`."""
    delay: Duration = "0 s"
    """The watermark of a cut passes the end of the period by this time before it has a tag."""
    time_zone: Zone = "UTC"
    """Time zone of the periods."""
    fill_gaps: bool = False
    """Make a tag of each period if a commit passes several; otherwise only that of the newest."""
    savepoints: bool = False
    """Make a tag of each savepoint and each complete drain."""
    savepoint_name: Annotated[str, AfterValidator(_savepoint_name)] = "savepoint-{name}"
    """Name of the tag of a savepoint, with `{name}` and `{decision}`. If it is that of another snapshot, and
    has no `{decision}`, the decision is added."""
    retained: Duration | None = None
    """Time after which the upkeep of the table's format may delete a tag; none: it stays."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.period is None and not self.savepoints:
            raise ValueError('no tag would ever be made. Set period, such as period = "daily", or savepoints')
        if self.period is None and (self.name is not None or self.fill_gaps or milliseconds(self.delay)):
            raise ValueError(
                "name, delay and fill_gaps belong to tags of periods. Set period, or remove them"
            )
        if self.retained is not None and milliseconds(self.retained) == 0:
            raise ValueError(
                'retained must be longer than nothing, such as "30 d". Remove it to keep all tags'
            )
        if self.period is not None:
            check_pattern(self.pattern, self.period)
        return self

    @property
    def pattern(self) -> str:
        """Return the format of the names of periods."""
        return self.name if self.name is not None else FORMATS[self.period or "daily"]
