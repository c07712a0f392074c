"""The language of golden cases: a line is an event or a mishap, a `> ` line what the core made of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from sluicegate.events.models import StreamPolicy
from tests.golden.coordinator import USUAL, Watch, World
from tests.golden.mishaps import Mishaps
from tests.golden.writing import POLICY, SETTINGS, LogWords


class Script(LogWords, Mishaps):
    """Runs one case."""

    def __init__(self, watch: Watch | None = None) -> None:
        self._out: list[str] = []
        self.world = World(SETTINGS, watch or Watch(), lambda line: self._out.append(f"> {line}"))

    def run(self, text: str) -> str:
        """Return the case with its expected lines as they come out now."""
        for line in text.splitlines():
            if line.startswith(">"):
                continue
            self._out.append(line)
            words = line.partition("#")[0].split()
            if words:
                self._step(words)
        return "\n".join(self._out) + "\n"

    def _step(self, words: list[str]) -> None:
        unseen = words[-1] == "&"
        verb, *rest = words[:-1] if unseen else words
        method = cast("Callable[..., None] | None", getattr(self, f"do_{verb}", None))
        if method is None:
            raise ValueError(f"no such word: {verb}")
        plain = [each for each in rest if "=" not in each or verb in ("decide", "next")]
        method(*plain, **dict(each.split("=", 1) for each in rest if each not in plain))
        if verb not in ("settings", "regions") and not unseen:
            self.work()

    def do_settings(self, **wanted: str) -> None:
        """partial=, file_names=, max=, timeout= (of the alignment, ms), probe=, record=, carry= (age)."""
        names = {
            "timeout": "alignment_timeout",
            "probe": "probe_interval",
            "record": "record_interval",
            "carry": "carry_after",
        }
        times = {names[key]: int(value) for key, value in wanted.items() if key in names}
        policy = dict(POLICY) | {
            key: value for key, value in wanted.items() if key in ("partial", "file_names")
        }
        policy |= {"max_consecutive_fallbacks": int(wanted["max"])} if "max" in wanted else {}
        self.world.settings = replace(
            self.world.settings, policy=StreamPolicy.model_validate(policy), **cast(Any, times)
        )

    def do_trace(self, *kinds: str) -> None:
        """Show effects of these kinds too."""
        self.world.traced = USUAL | set(kinds)

    def do_whole(self) -> None:
        """Tell reasons whole from here on, with what to do about them."""
        self.world.whole = True
