"""The live page and the HTTP interface of one coordinator, put together."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aiohttp import web

from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.web.board import Board
from sluicegate.coordinator.web.feed import Feed
from sluicegate.coordinator.web.outages import KafkaSilence
from sluicegate.coordinator.web.routes import Routes
from sluicegate.coordinator.web.updates import Updates
from sluicegate.state_store import StateStore

if TYPE_CHECKING:
    from sluicegate.coordinator.stream.runner import StreamRunner


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
