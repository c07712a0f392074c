"""What must have been read of the log before anything is decided, and when the alignment expires.

The log's time is the newest append time that was read, and what has elapsed since by the own clock: a clock
that differs from the broker's makes no difference, and a backlog that is still to be read delays, only.
"""

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


class Alignment:
    """The timer after which regions that owe fall back."""

    def __init__(self, timeout: int) -> None:
        self._timeout = timeout
        self._newest = 0
        self._read_at: int | None = None
        self._fresh = False
        self._fenced: int | None = None
        """For which beginning of the wait the end of the log was asked for after the expiry."""

    def read(self, time: int) -> None:
        """Take note of a record's append time."""
        self._newest = max(self._newest, time)
        self._fresh = True

    def tick(self, now: int) -> None:
        """Take note of the time."""
        if self._fresh or self._read_at is None:
            self._read_at = now
            self._fresh = False

    def time(self, now: int) -> int | None:
        """The log's time in milliseconds; None before the clock was first looked at."""
        return None if self._read_at is None else self._newest + now - self._read_at

    def expired(self, since: int | None, now: int) -> bool:
        """Whether what has waited since then need wait no more."""
        time = self.time(now)
        return since is not None and time is not None and time >= since + self._timeout

    def fence(self, since: int | None) -> bool:
        """Whether the log's end must be asked for, as the expiry is new."""
        if since == self._fenced:
            return False
        self._fenced = since
        return True
