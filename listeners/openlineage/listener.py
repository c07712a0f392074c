"""The listener `openlineage`: each committed cut is a run of the job that the stream is.

The package of the client library is an extra, so it is imported when a listener is checked or opened.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from sluicegate.listeners.port import (
    Action,
    ListenerUnready,
    Options,
    Outcome,
    Result,
    Services,
    State,
    Step,
    Stream,
)

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

    from sluicegate.listeners.openlineage.events import Sender


# Settings of the listener `openlineage`.


def _check_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL such as https://lineage.example.com")
    if parts.username or parts.password:
        raise ValueError("must not contain credentials: they would be in logs; set `api_key_file`")
    return value


class OpenLineageOptions(Options):
    """Settings of the listener `openlineage`."""

    url: Annotated[str, AfterValidator(_check_url)] | None = None
    """URL of a server with the HTTP interface of OpenLineage, such as Marquez; or set `config_file`."""
    endpoint: str = "api/v1/lineage"
    """Path of the server for events."""
    api_key_file: Path | None = None
    """File with a key, which is sent as `Authorization: Bearer KEY`. Each request reads the file."""
    timeout: Annotated[float, Field(gt=0, le=60)] = 10.0
    """Seconds for one request."""
    config_file: Path | None = None
    """File `openlineage.yml` of the client library, with the section `transport` alone."""
    namespace: Annotated[str, Field(min_length=1, max_length=200)] = "sluicegate"
    """Namespace of the jobs. A stream is a job of its name."""

    @model_validator(mode="after")
    def _one_destination(self) -> Self:
        if (self.url is None) == (self.config_file is None):
            raise ValueError("set `url` or `config_file`, one of them")
        if self.url is None and self.api_key_file is not None:
            raise ValueError("`api_key_file` belongs to `url`; `config_file` has its own `auth`")
        return self


class LineageState(State):
    """The listener needs no state: each outcome is a run of its own."""


@dataclass(frozen=True)
class Emission(Action):
    """One event on its way."""

    event: "RunEvent | None" = None


class OpenLineage:
    """The lineage of one stream."""

    def __init__(
        self,
        namespace: str,
        stream: Stream,
        sender: "Sender",
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._namespace, self._stream = namespace, stream
        self._sender, self._in_thread = sender, in_thread

    def initial(self) -> LineageState:
        """Return the empty state."""
        return LineageState()

    def load(self, state: Mapping[str, Any]) -> LineageState:
        """Return the empty state."""
        return LineageState.model_validate(state)

    def apply(self, outcome: Outcome, state: LineageState) -> Step[LineageState]:
        """Return the events of the run that an outcome is."""
        from sluicegate.listeners.openlineage.events import run_events

        actions = tuple(
            Emission(
                key=f"{outcome.id}:{event.eventType.value if event.eventType else ''}",
                text=f"send the lineage of decision {outcome.decision}",
                event=event,
            )
            for event in run_events(self._namespace, self._stream, outcome)
        )
        return Step(state, actions)

    def due(self, now: int, state: LineageState) -> Step[LineageState]:
        """Return nothing: time causes no event."""
        return Step(state)

    async def run(self, action: Action) -> Result:
        """Send an event. The client library blocks, so it runs in a thread."""
        if not isinstance(action, Emission) or action.event is None:
            raise TypeError(f"lineage has no action {type(action).__name__}")
        event = action.event
        result: Result = await self._in_thread(lambda: self._sender(event))
        return result

    async def close(self) -> None:
        """Do nothing: the connections end with their sender."""


@dataclass(frozen=True)
class OpenLineageType:
    """The type of listeners `openlineage`."""

    options: type[OpenLineageOptions] = OpenLineageOptions

    def check(self, options: OpenLineageOptions, stream: Stream) -> None:
        """Raise ListenerUnready if the library is missing, or a file of the settings cannot be used."""
        _sender(options)

    def open(self, options: OpenLineageOptions, stream: Stream, services: Services) -> OpenLineage:
        """Return a listener. Raises ListenerUnready."""
        return OpenLineage(options.namespace, stream, _sender(options), services.in_thread)


def _sender(options: OpenLineageOptions) -> "Sender":
    try:
        from sluicegate.listeners.openlineage.events import open_sender
    except ImportError as error:
        raise ListenerUnready(
            f"the type openlineage needs a package that is not installed ({error.name}); install it with: "
            'pip install "sluicegate[openlineage]"'
        ) from error
    return open_sender(options)


TYPE = OpenLineageType()
