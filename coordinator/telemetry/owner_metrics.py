"""Metric with the owner of each stream, for joins of alerts."""

from collections.abc import Callable

from sluicegate.coordinator.telemetry.exposition import Gauge

Make = Callable[[str, str, tuple[str, ...], str], Gauge]


class OwnerMetrics:
    """Owners of the streams of this process, as its settings name them."""

    def __init__(self, gauge: Make) -> None:
        self.gauge = gauge(
            "stream_owner_info",
            "boolean",
            ("stream", "owner"),
            "Always 1; the label is the `owner` of the stream's settings. Absent without one",
        )
        self._shown: dict[str, str] = {}

    def show(self, stream: str, owner: str) -> None:
        """Set the owner of a stream; empty: it has none."""
        if self._shown.get(stream, "") == owner:
            return
        self.forget(stream)
        if owner:
            self._shown[stream] = owner
            self.gauge.labels(stream, owner).set(1)

    def forget(self, stream: str) -> None:
        """Remove a stream that another process serves now, or none."""
        if self._shown.pop(stream, None) is not None:
            self.gauge.remove_by_labels({"stream": stream})
