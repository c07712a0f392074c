"""The live page and the HTTP interface of one coordinator, put together."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aiohttp import web

from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.web.board import Board
from sluicegate.coordinator.web.feed import Feed
from sluicegate.coordinator.web.routes import Routes
from sluicegate.coordinator.web.updates import Updates
from sluicegate.state_store import StateStore

if TYPE_CHECKING:
    from sluicegate.coordinator.stream.runner import StreamRunner


class Page:
    """The live page and the HTTP interface of one coordinator."""

    def __init__(self, settings: Settings, own: Callable[[], "Mapping[str, StreamRunner]"]) -> None:
        """`own` returns the streams of this coordinator."""
        self._feed = Feed(settings)
        self._board = Board(settings, own, self._feed)

    def add_to(self, app: web.Application) -> None:
        """Add the routes."""
        Routes(self._board, self._feed, Updates(self._board, self._feed)).add_to(app)

    async def run(self) -> None:
        """Follow what happens in the deployment, until cancelled."""
        await self._feed.run()

    def connect(self, store: StateStore | None) -> None:
        """Set the store with the views of the other coordinators; None while there is no connection."""
        self._board.store = store
