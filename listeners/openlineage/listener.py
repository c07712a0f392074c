"""The listener `openlineage`: each committed cut is a run of the job that the stream is.

The package of the client library is an extra, so it is imported when a listener is checked or opened. It
makes the events; they are sent here, so that a failure is seen, and the host tries again.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from sluicegate.installation import install_command
from sluicegate.listeners.http import Answer, Url, post
from sluicegate.listeners.port import (
    Action,
    Done,
    Failed,
    ListenerUnready,
    Options,
    Outcome,
    Result,
    Services,
    State,
    StatelessListener,
    Step,
    Stream,
)


class OpenLineageOptions(Options):
    """Settings of the listener `openlineage`."""

    url: Url
    """URL of a server with the HTTP interface of OpenLineage, such as Marquez."""
    endpoint: str = "api/v1/lineage"
    """Path of the server for events."""
    api_key_file: Path | None = None
    """File with a key, which is sent as `Authorization: Bearer KEY`. Each request reads the file."""
    timeout: Annotated[float, Field(gt=0, le=60)] = 10.0
    """Seconds for one request."""
    namespace: Annotated[str, Field(min_length=1, max_length=200)] = "sluicegate"
    """Namespace of the jobs. A stream is a job of its name."""

    def headers(self) -> dict[str, str]:
        """Return the headers of a request. It reads the file of the key. Raises ListenerUnready."""
        headers = {"content-type": "application/json"}
        if self.api_key_file is not None:
            try:
                key = self.api_key_file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ListenerUnready(
                    f"api_key_file {self.api_key_file} cannot be read ({error}); write the key into it"
                ) from error
            headers["authorization"] = f"Bearer {key}"
        return headers


@dataclass(frozen=True)
class Emission(Action):
    """One event on its way."""

    body: bytes = b""


class OpenLineage(StatelessListener):
    """The lineage of one stream."""

    def __init__(self, options: OpenLineageOptions, stream: Stream, services: Services) -> None:
        self._options, self._stream, self._http = options, stream, services.http

    def apply(self, outcome: Outcome, state: State) -> Step[State]:
        """Return the events of the run that an outcome is."""
        from sluicegate.listeners.openlineage.events import run_events

        actions = tuple(
            Emission(f"{outcome.id}:{kind}", f"send the lineage of decision {outcome.decision}", body)
            for kind, body in run_events(self._options.namespace, self._stream, outcome)
        )
        return Step(state, actions)

    async def run(self, action: Action) -> Result:
        """Send an event."""
        if not isinstance(action, Emission):
            raise TypeError(f"lineage has no action {type(action).__name__}")
        options = self._options
        try:
            headers = await asyncio.to_thread(options.headers)
        except ListenerUnready as error:
            return Failed(f"{error}.")
        url = f"{options.url.rstrip('/')}/{options.endpoint.lstrip('/')}"
        answer = await post(self._http, url, action.body, headers, options.timeout)
        if isinstance(answer, Answer) and not answer.is_success:
            return Failed(f"{url} answered {answer.status}. Look at the log of that server.")
        return Done() if isinstance(answer, Answer) else answer


class OpenLineageType:
    """The type of listeners `openlineage`."""

    options: type[OpenLineageOptions] = OpenLineageOptions

    def check(self, options: OpenLineageOptions, stream: Stream) -> None:
        """Raise ListenerUnready if the library is missing, or the file of the key cannot be read."""
        try:
            import sluicegate.listeners.openlineage.events  # noqa: F401
        except ImportError as error:
            raise ListenerUnready(
                f"the type openlineage needs a package that is not installed ({error.name}); install it "
                f"with: {install_command('openlineage')}"
            ) from error
        options.headers()

    def open(self, options: OpenLineageOptions, stream: Stream, services: Services) -> OpenLineage:
        """Return a listener. Raises ListenerUnready."""
        self.check(options, stream)
        return OpenLineage(options, stream, services)


TYPE = OpenLineageType()
