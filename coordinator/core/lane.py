"""A lane: effects of one kind of dependency, one at a time, with a growing pause after failures."""

from hashlib import blake2b
from typing import Final

from sluicegate.coordinator.core.effects import Effect

_STEPS: Final = 1024


class Lane:
    """One effect in flight at most."""

    def __init__(self, name: str, first_pause: int, longest_pause: int) -> None:
        self._name = name
        self._first = first_pause
        self._longest = longest_pause
        self._pauses = 0
        self.running: Effect | None = None
        self.failures = 0
        self.resume_at = 0
        """Milliseconds; nothing starts before."""

    def free(self, now: int) -> bool:
        """Whether an effect may start."""
        return self.running is None and now >= self.resume_at

    def start(self, effect: Effect) -> Effect:
        """Put an effect in flight."""
        self.running = effect
        return effect

    def succeeded(self) -> None:
        """The effect in flight has come to its end."""
        self.running = None
        self.failures = 0

    def failed(self, now: int) -> None:
        """The effect in flight failed; pause twice as long as the time before."""
        self.running = None
        self.pause(now, min(self._first * 2 ** min(self.failures, 16), self._longest))
        self.failures += 1

    def pause(self, now: int, length: int) -> None:
        """Start nothing for that many milliseconds, or up to a quarter less.

        Streams that share a store would otherwise all ask it again at the same moment. The core has no
        randomness, so the spread follows from the name.
        """
        self._pauses += 1
        drawn = blake2b(f"{self._name}/{self._pauses}".encode(), digest_size=2).digest()
        spread = int.from_bytes(drawn, "big") % _STEPS
        self.resume_at = now + length - length * spread // (4 * _STEPS)
