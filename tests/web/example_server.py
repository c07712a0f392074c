"""Server of the live page with data that a test controls: the static files and the HTTP contract."""

import asyncio
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.observe.view import Unfinished, reasons_of
from sluicegate.events.problems import Code, Problem
from sluicegate.state_store import StreamView

STATIC: Final = Path(__file__).parents[2] / "coordinator" / "web" / "static"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
NOW: Final = 1_764_233_472_000
"""2025-11-27T08:51:12Z: the time of the example deployment."""
REGIONS: Final = ("EWR", "JFK", "LGA")
SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND

RESET: Final = (
    "Region JFK is stalled: checkpoint 412 was completed twice, for different source ranges: the source was "
    "changed, or two drivers share one state. Stop one of two drivers. Let the driver of the region begin a "
    "new incarnation at the committed position. With Spark: "
    "`sluicegate region reset --stream flights --region JFK`."
)
REFUSAL: Final = (
    "A driver of region EWR is refused: the region has another live incarnation. Start it with the state of "
    "that incarnation."
)
PAUSE: Final = (
    "Stream baggage commits nothing: an operator paused it. Continue with `sluicegate stream resume "
    "--stream baggage`. `sluicegate audit --stream baggage` tells who paused it, when and why."
)
RETRY: Final = (
    "Stream tickets tries again: the step publish fails: the catalog http://catalog:8181 gives no answer for "
    "lake.tickets (Connection refused). It continues by itself when the cause is gone. `sluicegate check` "
    "looks at Kafka, the tables and Redis."
)
MISMATCH: Final = "SchemaMismatch: the rows have the column gate, which the table lacks"
LAST_WORD: Final = Problem(
    code=Code.DECLINED, region="LGA", checkpoint=413, names=("query-failed",), detail=MISMATCH
)
LAGGING: Final = Problem(code=Code.WAITS_FOR_REGIONS, names=("south",))

Json = dict[str, Any]


class ExampleServer:
    """The page and its data. `push` sends a change to every connected page."""

    def __init__(self) -> None:
        self.deployment: Json = {
            "group": "sluicegate",
            "host": "commit-1",
            "outages": [],
            "topic_prefix": "sluicegate",
            "shared": True,
            "problem": None,
            "now": NOW,
        }
        self.streams: dict[str, Json] = {}
        self.cuts: dict[str, list[Json]] = {}
        self.letters: list[Json] = []
        self.checkpoints: dict[str, list[Json]] = {}
        self.refuses = False
        """True: updates are answered with an error, which closes an EventSource for good."""
        self.asked: list[str] = []
        """Paths with which cuts were asked for."""
        self.connections = 0
        """Number of connections that were made."""
        self.port = 0
        self._queues: set[asyncio.Queue[bytes | None]] = set()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def add(self, *streams: Json) -> None:
        """Add streams, which a page sees with its next connection."""
        self.streams.update({each["stream"]: each for each in streams})

    async def start(self) -> None:
        """Listen on the port of the last start; on any free one at first."""
        app = web.Application()
        app.router.add_get("/", self._page)
        app.router.add_get("/api/v1/updates", self._updates)
        app.router.add_get("/api/v1/streams/{name}/checkpoints", self._checkpoints)
        app.router.add_get("/api/v1/streams/{name}/cuts", self._cuts)
        app.router.add_get("/{file}", self._file)
        app.on_response_prepare.append(_add_policy)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        self.cut_connections()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    def cut_connections(self) -> None:
        for queue in self._queues:
            queue.put_nowait(None)

    def push(self, kind: str, message: Json) -> None:
        """Send a message to every connected page."""
        for queue in self._queues:
            queue.put_nowait(_encode(kind, message))

    def push_streams(self, *streams: Json, removed: Iterable[str] = ()) -> None:
        """Change streams, and send them."""
        self.add(*streams)
        for name in removed:
            del self.streams[name]
        self.push("state", self._state(list(streams), whole=False, removed=[*removed]))

    def push_cut(self, stream: str, cut: Json) -> None:
        self.cuts.setdefault(stream, []).append(cut)
        self.push("cuts", {"stream": stream, "whole": False, "cuts": [cut]})

    def _state(self, streams: list[Json], *, whole: bool, removed: list[str]) -> Json:
        return {"whole": whole, "deployment": self.deployment, "streams": streams, "removed": removed}

    def _everything(self) -> Iterator[bytes]:
        yield _encode("state", self._state([*self.streams.values()], whole=True, removed=[]))
        yield _encode("letters", {"whole": True, "letters": self.letters})

    async def _page(self, request: web.Request) -> web.StreamResponse:
        return web.FileResponse(STATIC / "index.html")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        files = {path.name: path for path in STATIC.iterdir()}
        path = files.get(request.match_info["file"])
        return web.FileResponse(path) if path else web.Response(status=404)

    async def _updates(self, request: web.Request) -> web.StreamResponse:
        self.connections += 1
        if self.refuses:
            return web.Response(status=503)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._queues.add(queue)
        try:
            for part in self._everything():
                await response.write(part)
            while (message := await queue.get()) is not None:
                await response.write(message)
        except ConnectionResetError:
            pass  # the page was closed
        finally:
            self._queues.discard(queue)
        return response

    async def _cuts(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        self.asked.append(request.path_qs)
        cuts = self.cuts.get(name, [])[-50:]
        if request.query["regions"] == "false":
            cuts = [each | {"regions": {}} for each in cuts]
        return web.json_response({"stream": name, "cuts": cuts})

    async def _checkpoints(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in self.checkpoints:
            problem = f"Another coordinator serves stream {name}: ask the page of that coordinator."
            return web.json_response({"problem": problem}, status=404)
        return web.json_response({"stream": name, "checkpoints": self.checkpoints[name]})


async def _add_policy(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["Cache-Control"] = "no-store"


def _encode(kind: str, message: Json) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(message)}\n\n".encode()


# --- data -----------------------------------------------------------------------------------------


def make_stream(
    name: str,
    *conditions: tuple[str, str, str],
    regions: Iterable[str] = REGIONS,
    changes: Mapping[str, Json] | None = None,
    live: bool = True,
    silent: Iterable[str] = (),
    waits: Iterable[Problem] = (),
    **view: Any,
) -> Json:
    """Return a stream; conditions are (kind, code, message).

    `waits` are further conditions, and `changes` are values of single regions.
    """
    names = [*regions]
    region = {"phase": "live", "idle": False, "heard": NOW - 2 * SECOND, "consecutive_fallbacks": 0}
    values: Json = {
        "stream": name,
        "revision": 4_100,
        "updated_at": NOW - (0 if live else 3 * MINUTE),
        "commit_user": f"sluicegate-{name}",
        "table": f"file:///lake/warehouse/default.db/{name}",
        "decided": 128,
        "committed": 128,
        "snapshot": {"id": 131, "identity": "7f3a9c52"},
        "watermark": NOW - 24 * SECOND,
        "assignment": {"number": 1, "regions": names, "after": 0},
        "max_consecutive_fallbacks": 3,
        "regions": {each: region | (changes or {}).get(each, {}) for each in names},
        "waiting": {names[0]: {"files": 14, "rows": 1_200, "since": NOW - 9 * SECOND}},
        "conditions": [{"kind": kind, "code": code, "message": text} for kind, code, text in conditions],
    }
    delays = {"p50": 2_140, "p99": 8_420, "commits": 128}
    view = values | view
    for each in waits:
        told = {"code": each.code, "message": format_problem(each, name), "region": each.region}
        view["conditions"] += [{"kind": "wait", **told, "arguments": each.model_dump(mode="json")}]
    shown = StreamView.model_validate(view | {"silent": [*silent], "decided_cut": {}})
    left = dict.fromkeys(silent, Unfinished(413, 3))
    reasons = [each._asdict() for each in reasons_of(shown, NOW, None, left=left)]
    usual = {
        "stream": name,
        "live": live,
        "own": live,
        "delays": delays,
        "committed_at": None,
        "pending_bytes": 734_000 if live else None,
    }
    return {**usual, "reasons": reasons, "view": {**view, "silent": [*silent]}}


def make_cut(number: int, outcome: str, regions: Mapping[str, Json], at: int = NOW) -> Json:
    """Return a cut as the page receives it; `at` is the time of its decision."""
    committed = outcome in ("full", "forced", "partial")
    return {
        "id": f"{outcome}-{number}",
        "time": at + SECOND,
        "outcome": outcome,
        "decision": number,
        "attempt": 2 if outcome == "abandoned" else None,
        "snapshot": {"id": number + 3, "identity": f"{number * 7919:08x}"} if committed else None,
        "watermark": at - 24 * SECOND if committed else None,
        "files": 36 if committed else None,
        "rows": 5_400 if committed else None,
        "bytes": 1_834_000 if committed else None,
        "partitions": 3 if committed else None,
        "first_event": at - 20 * SECOND,
        "sealed": at - SECOND,
        "decided": at if outcome != "abandoned" else None,
        "visible": at + SECOND if committed else None,
        "delay": 2_000 if committed else None,
        "regions": dict(regions),
    }


def make_entry(state: str, checkpoint: int, fallbacks: int = 0, since: int = NOW) -> Json:
    """Return a region of a cut."""
    incarnation = "0f4c8d1e2b7a4e6f"
    return {
        "state": state,
        "incarnation": incarnation,
        "checkpoint": checkpoint,
        "fallbacks": fallbacks,
        "since": since,
    }


def make_cuts(
    regions: Iterable[str] = REGIONS,
    first: int = 79,
    count: int = 50,
    lagging: str = "",
    *,
    last: int = NOW,
    every: int = 20,
    size: int = 36,
    lag: int = 24,
    seed: int = 0,
) -> list[Json]:
    """Return cuts of which some are not full. A lagging region falls back in the last two.

    The newest one is of `last`, and there is one `every` so many seconds. `size` and `lag` are about those of
    its files and of its watermark in seconds; they vary with `seed`.
    """
    at: dict[str, tuple[int, int, int]] = dict.fromkeys(regions, (0, 0, NOW))
    cuts, drawn = [], random.Random(seed)
    for number in range(first, first + count):
        time = last - (first + count - number) * every * SECOND
        outcome = {0: "reverted", 7: "abandoned"}.get((number + seed) % 23, "")
        entries = {}
        for index, name in enumerate(at):
            state, fallbacks = _state_at(number + seed, index, at[name][1])
            if name == lagging and number >= first + count - 2:
                state, fallbacks = "fell back", at[name][1] + 1
            if outcome:
                state, fallbacks = "left out", at[name][1]
            moved = state == "moved"
            checkpoint, since = (number, time) if moved else (at[name][0], at[name][2])
            at[name] = (checkpoint, fallbacks, since)
            entries[name] = make_entry(state, checkpoint, fallbacks, since)
        partial = any(each["state"] == "fell back" for each in entries.values())
        made = outcome or ("partial" if partial else "forced" if number % 9 == 4 else "full")
        cut = make_cut(number, made, entries, time)
        if cut["files"] is not None and seed:
            files = max(1, round(size * drawn.uniform(0.7, 1.3)))
            late = round(lag * drawn.uniform(0.8, 1.2) * (3 if drawn.random() < 0.05 else 1))
            rows, wait = (
                round(files * drawn.uniform(120, 180)),
                round(400 * seed * drawn.lognormvariate(0, 0.4)),
            )
            visible = time + SECOND
            cut |= {"files": files, "rows": rows, "bytes": rows * 340, "watermark": visible - late * SECOND}
            cut |= {"sealed": visible - wait, "delay": wait, "visible": visible}
        cuts.append(cut)
    return cuts


def _state_at(number: int, index: int, fallbacks: int) -> tuple[str, int]:
    if number % 9 == 4 or fallbacks == 3:
        return "moved", 0
    if (number + 5 * index) % (13 + index) < index + 1:
        return "fell back", fallbacks + 1
    return ("idle", 0) if (number // 6 + index) % 7 == 3 else ("moved", 0)


def make_letter(offset: int, **changes: Any) -> Json:
    usual = {
        "id": f"letter-{offset}",
        "offset": offset,
        "time": NOW - MINUTE,
        "stream": "flights",
        "code": "unknown-stream",
        "reason": "The event names a stream that the settings do not have.",
        "source": "sluicegate.events-3@4711",
        "dealt": None,
    }
    return usual | changes


def make_checkpoint(number: int, region: str = "JFK", **changes: Any) -> Json:
    """Return a sealed checkpoint, with these changes."""
    usual = {
        "region": region,
        "incarnation": "0f4c8d1e2b7a4e6f",
        "checkpoint": number,
        "named": 4,
        "arrived": 4,
        "missing": [],
        "missing_count": 0,
        "attempts": 4,
        "files": 4,
        "rows": 600,
        "first_event": NOW - MINUTE,
        "last_event": NOW - 30 * SECOND,
        "bytes": 734_000,
        "sealed_at": NOW - 29 * SECOND,
    }
    return usual | changes


EXAMPLES: Final = {
    "weather": (60, 1),
    "airports": (300, 4),
    "bookings": (10, 12),
    "baggage": (30, 60),
    "tickets": (15, 8),
    "gates": (20, 24),
    "orders": (5, 18),
}
"""By stream, the seconds between its cuts and the files of each."""
_PAUSES: Final = {"baggage": 31 * MINUTE, "tickets": 2 * MINUTE, "bookings": 40 * SECOND}
"""By stream, the time without a cut."""


def _example(
    name: str,
    regions: Iterable[str],
    committed: int,
    *conditions: tuple[str, str, str],
    lag: int,
    **more: Any,
) -> Json:
    """Return a stream of the example at its own place; `lag` is in seconds."""
    place: Json = {"decided": committed, "committed": committed, "watermark": NOW - lag * SECOND}
    snapshot = {"id": committed + 3, "identity": f"{committed * 7919:08x}"}
    return make_stream(name, *conditions, regions=regions, snapshot=snapshot, **place, **more)


def add_example(server: ExampleServer) -> None:
    """Add a deployment that has each state of a stream."""
    stalled = {
        "JFK": {"stalled": {"code": "completed-differently", "message": RESET}, "consecutive_fallbacks": 2}
    }
    refused = {"EWR": {"refused": {"code": "live-incarnation", "message": REFUSAL}}}
    tables = {
        "items": {"identifier": "shop.items", "decision": 211, "snapshot": {"id": 209, "identity": "4c1d"}},
        "refunds": {
            "identifier": "shop.refunds",
            "decision": 187,
            "snapshot": {"id": 64, "identity": "9be2"},
        },
    }
    for each in tables.values():
        each |= {"identity": "u", "location": "file:///lake/shop"}
    waits = {"north": {"files": 3, "rows": 410, "since": NOW - 4 * MINUTE}}
    server.add(
        _example("weather", ("station",), 412, lag=5),
        _example("airports", ("eu", "us"), 57, lag=420, live=False),
        _example("bookings", ("north", "south"), 903, waits=[LAGGING], waiting=waits, lag=61),
        _example("baggage", ("belt-1", "belt-2"), 77, ("pause", "paused", PAUSE), paused=True, lag=1_900),
        _example("tickets", ("web", "kiosk"), 340, ("retry", "retrying", RETRY), lag=130),
        _example(
            "gates",
            REGIONS,
            412,
            changes={"LGA": {"heard": NOW - 4 * MINUTE}},
            silent=["LGA"],
            waits=[LAST_WORD],
            lag=260,
        ),
        _example(
            "orders",
            ("EWR", "JFK"),
            211,
            ("refusal", "live-incarnation", REFUSAL),
            changes=refused,
            tables=tables,
            lag=12,
        ),
        make_stream("flights", ("stall", "completed-differently", RESET), changes=stalled, decided=129),
    )
    for number, name in enumerate(server.streams):
        cadence = EXAMPLES.get(name)
        view: Json = server.streams[name]["view"]
        regions = view["assignment"]["regions"]
        if cadence is None:
            server.cuts[name] = make_cuts(regions, lagging="JFK")
            continue
        every, size = cadence
        if name != "bookings":
            files = size * (number % 3)
            view["waiting"] = {regions[0]: {"files": files, "rows": 150 * files, "since": NOW - every * 700}}
        late, first = (NOW - view["watermark"]) // SECOND, view["committed"] - 49
        made = make_cuts(
            regions, first, every=every, size=size, last=NOW - _PAUSES.get(name, 0), lag=late, seed=number + 1
        )
        server.cuts[name] = made
        server.streams[name]["committed_at"] = made[-1]["time"]
    lacking = make_checkpoint(413, arrived=3, missing=["writer-2/413/0"], missing_count=1, sealed_at=None)
    open_one = make_checkpoint(414, named=None, arrived=1, sealed_at=None)
    server.checkpoints["flights"] = [
        make_checkpoint(412),
        lacking,
        open_one,
        make_checkpoint(7, region="EWR"),
    ]
    server.letters = [make_letter(17, dealt="dropped"), make_letter(21, stream=None, code="malformed")]
