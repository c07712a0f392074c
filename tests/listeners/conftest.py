"""A server that the tests of several types of listeners share."""

from collections.abc import AsyncIterator

import pytest

from tests.listeners.reporting import Server, reporting


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with reporting() as found:
        yield found
