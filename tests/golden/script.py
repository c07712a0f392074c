"""The language of golden cases: a line is an event or a mishap, a `> ` line the core's reaction."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from sluicegate.events.models import StreamPolicy
from tests.golden.coordinator import USUAL, World
from tests.golden.mishaps import Mishaps
from tests.golden.writing import POLICY, SETTINGS, LogWords, policy_of

_SETTING = ("settings", "regions", "tables")
"""Words that are about what starts from here on."""
TIMES = {
    "timeout": "alignment_timeout",
    "probe": "head_interval",
    "record": "record_interval",
    "interval": "commit_interval",
    "files": "commit_max_files",
    "bytes": "commit_max_bytes",
    "silence": "silence",
    "age": "max_position_age",
}


class Script(LogWords, Mishaps):
    """Runs one case."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self.world = World(SETTINGS, lambda line: self._out.append(f"> {line}"))

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
        if verb not in _SETTING and not self._down and self._node is None:
            # The coordinator is there before the first event: its policy comes first in the log.
            self.work()
        plain = [each for each in rest if "=" not in each or verb in ("decide", "next")]
        method(*plain, **dict(each.split("=", 1) for each in rest if each not in plain))
        if verb not in _SETTING and not unseen:
            self.work()

    def do_settings(self, **wanted: str) -> None:
        """partial= max= ratio= regions= of the policy; timeout= interval= probe= record= silence= in ms.

        timeouts=REGION:MS,REGION:MS of single regions.
        """
        own = [each.split(":") for each in wanted.pop("timeouts", "").split(",") if each]
        times: dict[str, Any] = {"alignment_timeouts": {name: int(length) for name, length in own}}
        times |= {TIMES[key]: int(value) for key, value in wanted.items() if key in TIMES}
        policy = policy_of({key: value for key, value in wanted.items() if key not in TIMES})
        self.world.settings = replace(
            self.world.settings,
            policy=StreamPolicy.model_validate(dict(POLICY) | policy),
            **times,
        )

    def do_trace(self, *kinds: str) -> None:
        """Show effects of these kinds, and events of these types, too."""
        self.world.traced = USUAL | set(kinds)
