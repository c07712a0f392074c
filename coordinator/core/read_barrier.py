"""ReadBarrier: the end of the log that must be read before anything is decided."""

from sluicegate.coordinator.core.effects import Effect


class ReadBarrier:
    """An end of the log that was fetched after it was last required."""

    def __init__(self) -> None:
        self._end: int | None = None
        self._overtaken: Effect | None = None
        """A fetch that began before an end was last required: its end may be too early."""

    @property
    def unknown(self) -> bool:
        """True if an end is still to be fetched."""
        return self._end is None

    def require(self, running: Effect | None) -> None:
        """Require another end; a fetch that is running does not count."""
        self._end = None
        self._overtaken = running

    def fetched(self, effect: Effect, end: int) -> None:
        """Note an end."""
        self._end = None if effect is self._overtaken else end

    def passed(self, position: int) -> bool:
        """True if everything before the end was read."""
        return self._end is not None and position >= self._end
