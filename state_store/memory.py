"""State store in memory, for tests and for a coordinator without Redis."""

from sluicegate.state_store.port import Stamp, StateStoreUnavailable, StreamView, UnreadableView


class MemoryStateStore:
    """State store that keeps the views in this process, as text, so that a reader cannot modify them."""

    def __init__(self) -> None:
        self.available = True
        """Set it to False to simulate an outage."""
        self._views: dict[str, tuple[int, str]] = {}

    async def write(self, view: StreamView) -> bool:
        """See StateStore."""
        self._check_available()
        stored = self._views.get(view.stream)
        if stored is not None and stored[0] > view.revision:
            return False
        self._views[view.stream] = view.revision, view.model_dump_json()
        return True

    async def stamp(self, stream: str) -> Stamp | None:
        """See StateStore."""
        view = await self.read(stream)
        return None if view is None else Stamp(view.revision, str(view.updated_at))

    async def replace(self, view: StreamView, stamp: Stamp) -> bool:
        """See StateStore."""
        if await self.stamp(view.stream) != stamp:
            return False
        self._views[view.stream] = view.revision, view.model_dump_json()
        return True

    async def read(self, stream: str) -> StreamView | None:
        """See StateStore."""
        self._check_available()
        stored = self._views.get(stream)
        return None if stored is None else StreamView.model_validate_json(stored[1])

    async def streams(self) -> list[str]:
        """See StateStore."""
        self._check_available()
        return sorted(self._views)

    async def read_all(self) -> dict[str, StreamView | UnreadableView]:
        """See StateStore."""
        self._check_available()
        return {name: StreamView.model_validate_json(text) for name, (_, text) in sorted(self._views.items())}

    async def remove(self, stream: str) -> None:
        """See StateStore."""
        self._check_available()
        self._views.pop(stream, None)

    async def ping(self) -> None:
        """See StateStore."""
        self._check_available()

    async def close(self) -> None:
        """See StateStore."""

    def wipe(self) -> None:
        """Forget all views, as a Redis without persistence does at a restart."""
        self._views.clear()

    def _check_available(self) -> None:
        if not self.available:
            raise StateStoreUnavailable("the state store in memory was set to be unavailable")
