"""The search for secrets in all that people and other programs read of a deployment."""

import asyncio
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import numpy.typing as npt
from click.testing import CliRunner

from sluicegate.cli.main import main
from tests.integration.waiting import BACKSTOP

STREAM: Final = "flights"
COMMANDS: Final = (
    ("topics", "create"),
    ("check",),
    ("status",),
    ("dead-letters", "list"),
    ("orphans", "list", "--stream", STREAM),
    ("replay", "verify", "--stream", STREAM),
    ("stream", "resume", "--stream", STREAM),
)
PAGES: Final = (
    *("", "livez", "readyz", "metrics", "status", "api/v1/streams", "api/v1/dead-letters"),
    *(f"api/v1/streams/{STREAM}{part}" for part in ("", "/cuts", "/checkpoints")),
)
_END: Final = 8
"""Last bytes of a secret that are looked for first."""
_PIECE: Final = 1 << 20


async def command(config: Path, *arguments: str, **env: str) -> str:
    """Run a command; all that it says, and the traceback if it ends with one."""
    variables = {**env, "SLUICEGATE_CONFIG": str(config)}
    result = await asyncio.to_thread(CliRunner().invoke, main, arguments, env=variables)
    return result.output + "".join(traceback.format_exception(result.exception))


def answers(port: int) -> dict[str, str]:
    """Return the answer of each endpoint."""
    found = {}
    for path in PAGES:
        try:
            with urlopen(f"http://127.0.0.1:{port}/{path}", timeout=BACKSTOP) as answer:
                found[path] = answer.read().decode()
        except HTTPError as error:
            with error:
                found[path] = error.read().decode()
    return found


def leaks(said: Mapping[str, str], secrets: Iterable[str]) -> list[tuple[str, str]]:
    """Return each place with each secret that is seen there.

    An hour of tokens is many thousands of secrets. So all of them are looked for at once, by their ends.
    """
    wanted = [each.encode() for each in secrets]
    short = [each for each in wanted if len(each) < _END]
    by_end: dict[int, list[bytes]] = {}
    for each in wanted:
        if len(each) >= _END:
            by_end.setdefault(int.from_bytes(each[-_END:], sys.byteorder), []).append(each)
    ends = np.array(sorted(by_end), np.uint64)
    found = []
    for where, text in said.items():
        data = text.encode(errors="replace")
        seen = {each for each in short if each in data}
        for at, end in _places(data, ends):
            seen |= {each for each in by_end[end] if data.endswith(each, 0, at)}
        found += [(where, each.decode()) for each in sorted(seen)]
    return found


def _places(data: bytes, ends: npt.NDArray[np.uint64]) -> Iterator[tuple[int, int]]:
    """Give each place after one of the ends, and which one it is."""
    for start in range(0, len(data) if len(ends) else 0, _PIECE):
        windows = _ends(data[start : start + _PIECE + _END - 1])
        nearest = ends[np.minimum(np.searchsorted(ends, windows), len(ends) - 1)]
        for at in np.flatnonzero(nearest == windows):
            yield start + int(at) + _END, int(windows[at])


def _ends(data: bytes) -> npt.NDArray[np.uint64]:
    """Return each run of so many bytes as a number."""
    if len(data) < _END:
        return np.empty(0, np.uint64)
    runs = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), _END)
    return np.ascontiguousarray(runs).view(np.uint64).ravel()
