"""Functions of users that get each mark."""

import importlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from sluicegate.listeners.mark_done.reports import DoneMark
from sluicegate.listeners.port import ListenerRefused

Function = Callable[[DoneMark], Any]
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


def load_function(place: str) -> Function:
    """Return the function `package.module:name`. Raises ListenerRefused if there is none."""
    module, _, name = place.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        # The import runs code of the user.
        raise ListenerRefused(
            f"the function {place} of the action custom cannot be loaded: {type(error).__name__}: {error}. "
            "Install its package beside the service, or correct custom"
        ) from error
    if not callable(found):
        raise ListenerRefused(f"{place} of the action custom is no function. Name one that takes a mark")
    function: Function = found
    return function


async def call(function: Function, mark: DoneMark, in_thread: InThread) -> None:
    """Call a function with a mark: a coroutine function here, another one in a thread. Raises its errors."""
    if inspect.iscoroutinefunction(function):
        await function(mark)
        return
    result = await in_thread(lambda: function(mark))
    if inspect.isawaitable(result):
        await result
