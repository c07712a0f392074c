"""What must have been read of the log before anything is decided."""

from sluicegate.coordinator.core.effects import Effect


class Fence:
    """An end of the log, fetched after the last reason to doubt, up to which it must have been read."""

    def __init__(self) -> None:
        self._end: int | None = None
        self._overtaken: Effect | None = None
        """A fetch that began before the last doubt."""

    @property
    def unknown(self) -> bool:
        """Whether an end is still to be fetched."""
        return self._end is None

    def doubt(self, running: Effect | None) -> None:
        """Have the end fetched anew; the fetch that is running does not count."""
        self._end = None
        self._overtaken = running

    def fetched(self, effect: Effect, end: int) -> None:
        """Take note of an end."""
        self._end = None if effect is self._overtaken else end

    def passed(self, position: int) -> bool:
        """Whether everything before the end has been read."""
        return self._end is not None and position >= self._end
