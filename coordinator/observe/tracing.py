"""The spans of commits, as the stream sees them. Nothing here needs OpenTelemetry."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

Finish = Callable[[str, str | None], None]
"""Takes the name of a step's result, and the reason of a failure."""


class CommitSpans(Protocol):
    """The spans of one commit."""

    @property
    def context(self) -> str:
        """Return the trace context of the commit."""
        ...

    def step(self, name: str, decision: int | None) -> AbstractContextManager[Finish]:
        """Return the span of a step."""
        ...

    def link(self, parents: Iterable[str]) -> None:
        """Link contexts that the commit includes, each once."""
        ...

    def end(self, outcome: str) -> None:
        """End the commit."""
        ...


class Spans(Protocol):
    """Makes spans (spans.py)."""

    def commit(self, stream: str, parents: Sequence[str]) -> CommitSpans:
        """Start a commit with these parents."""
        ...
