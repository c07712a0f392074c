"""Waiting for a condition, with a deadline."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")


@overload
async def until(
    look: Callable[[], Awaitable[T]], holds: Callable[[T], bool] = ..., seconds: float = ...
) -> T: ...


@overload
async def until(look: Callable[[], T], holds: Callable[[T], bool] = ..., seconds: float = ...) -> T: ...


async def until(
    look: Callable[[], T | Awaitable[T]], holds: Callable[[T], bool] = bool, seconds: float = 30.0
) -> T:
    """Look again and again until the condition holds; fails with the last sight at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        value: T = await seen if inspect.isawaitable(seen) else seen
        if holds(value):
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s; last seen: {value!r}")
        await asyncio.sleep(0.05)
