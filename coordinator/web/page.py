"""The live page and the HTTP interface of one coordinator, put together."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from aiohttp import web
from pydantic import BaseModel

from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.web.board import Board
from sluicegate.coordinator.web.feed import Feed
from sluicegate.coordinator.web.model import Cuts, DeadLetters, Problem, Streams, document
from sluicegate.coordinator.web.outages import KafkaSilence
from sluicegate.coordinator.web.updates import Updates
from sluicegate.state_store import StateStore

if TYPE_CHECKING:
    from sluicegate.coordinator.stream.runner import StreamRunner


# The page and the HTTP interface, as routes of the service's server.

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
TYPES: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
MOST: Final = 50

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Routes:
    """Answers from the board and the feed."""

    def __init__(self, board: "Board", feed: "Feed", updates: "Updates") -> None:
        self._board, self._feed, self._updates = board, feed, updates

    def add_to(self, app: web.Application) -> None:
        """Add the routes, and end the readers of updates when the server closes."""
        app.router.add_get("/", _static("index.html"))
        for each in files("sluicegate.coordinator.web").joinpath("static").iterdir():
            app.router.add_get(f"/{each.name}", _static(each.name))
        app.router.add_get("/favicon.ico", _no_icon)
        app.router.add_get("/api/v1/streams", self._streams)
        app.router.add_get("/api/v1/streams/{stream}", self._stream)
        app.router.add_get("/api/v1/streams/{stream}/cuts", self._cuts)
        app.router.add_get("/api/v1/streams/{stream}/checkpoints", self._checkpoints)
        app.router.add_get("/api/v1/dead-letters", self._letters)
        app.router.add_get("/api/v1/updates", self._follow)
        app.router.add_get("/api/v1/openapi.json", self._document)
        app.on_shutdown.append(self._close)

    async def _close(self, _: web.Application) -> None:
        await self._updates.close()

    async def _streams(self, _: web.Request) -> web.Response:
        await self._board.look()
        states = await self._board.states()
        return _json(Streams(deployment=self._board.deployment(), streams=tuple(states.values())))

    async def _stream(self, request: web.Request) -> web.Response:
        await self._board.look()
        name = request.match_info["stream"]
        found = self._board.state(name)
        return _unknown(name) if found is None else _json(found)

    async def _cuts(self, request: web.Request) -> web.Response:
        name, last = request.match_info["stream"], request.query.get("last", str(MOST))
        if len(last) > len(str(MOST)) or not last.isdecimal() or not 1 <= int(last) <= MOST:
            return _json(Problem(problem=f"last={last[:20]} must be a number from 1 to {MOST}"), 400)
        await self._board.look()
        cuts = self._feed.history.cuts(name)
        if not cuts and self._board.state(name) is None:
            return _unknown(name)
        shown = cuts[-int(last) :]
        if request.query.get("regions") == "false":
            shown = tuple(each.model_copy(update={"regions": {}}) for each in shown)
        return _json(Cuts(stream=name, cuts=shown))

    async def _checkpoints(self, request: web.Request) -> web.Response:
        name = request.match_info["stream"]
        found = self._board.checkpoints(name)
        if found is not None:
            return _json(found)
        await self._board.look()
        if self._board.state(name) is None:
            return _unknown(name)
        return _json(
            Problem(
                problem=f"this coordinator does not serve the stream {name}; the page of its own one has them"
            ),
            404,
        )

    async def _letters(self, _: web.Request) -> web.Response:
        return _json(DeadLetters(letters=self._feed.letters.all()))

    async def _document(self, _: web.Request) -> web.Response:
        return web.json_response(document())

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        if self._updates.full:
            return _json(Problem(problem="too many pages are open; close one, and try again"), 503)
        answer = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await answer.prepare(request)
        # A page that is closed, or sleeps, is no error of the service.
        with suppress(ConnectionResetError):
            async for message in self._updates.follow():
                await answer.write(message)
        return answer


def _static(name: str) -> Handler:
    content = files("sluicegate.coordinator.web").joinpath("static", name).read_bytes()
    kind = TYPES[name.rpartition(".")[2]]

    async def handle(_: web.Request) -> web.StreamResponse:
        return web.Response(body=content, headers={**HEADERS, "Content-Type": f"{kind}; charset=utf-8"})

    return handle


async def _no_icon(_: web.Request) -> web.Response:
    """Browsers ask for an icon, and write an error if there is none."""
    return web.Response(status=204, headers=HEADERS)


def _json(body: BaseModel, status: int = 200) -> web.Response:
    return web.Response(
        text=body.model_dump_json(), status=status, content_type="application/json", headers=HEADERS
    )


def _unknown(stream: str) -> web.Response:
    return _json(Problem(problem=f"no stream {stream} is known here"), 404)


class Page:
    """The live page and the HTTP interface of one coordinator."""

    def __init__(
        self,
        settings: Settings,
        own: Callable[[], "Mapping[str, StreamRunner]"],
        kafka: KafkaSilence,
        make_store: Callable[[Settings], StateStore | None],
    ) -> None:
        """Make the page of a coordinator.

        `own` returns its streams, and `kafka` the reason for which Kafka does not answer it. `make_store`
        connects the page to Redis: it has views to show also while Kafka does not answer.
        """
        self._settings = settings
        self._make_store = make_store
        self._feed = Feed(settings)
        self._board = Board(settings, own, self._feed, kafka)

    def add_to(self, app: web.Application) -> None:
        """Add the routes."""
        Routes(self._board, self._feed, Updates(self._board, self._feed)).add_to(app)

    async def run(self) -> None:
        """Follow what happens in the deployment, until cancelled."""
        store = self._board.store = self._make_store(self._settings)
        try:
            await self._feed.run()
        finally:
            self._board.store = None
            if store is not None:
                await store.close()

    def keep(self) -> None:
        """Keep the own streams as they are: the connection to Kafka is lost."""
        self._board.keep()
