"""A TCP proxy that makes a server slow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass


@dataclass
class Slowness:
    """How long each piece of data waits, in both directions; may be changed at any time."""

    port: int
    seconds: float = 0.0


@asynccontextmanager
async def slow_proxy(host: str, port: int) -> AsyncIterator[Slowness]:
    """Forward connections to a server; gives the proxy's own port, and the way to slow it down."""
    tasks: set[asyncio.Task[None]] = set()
    slowness = Slowness(0)

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                await asyncio.sleep(slowness.seconds)  # time: the fault itself
                target.write(data)
                await target.drain()
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        for each in (pump(reader, back), pump(there, writer)):
            task = asyncio.create_task(each)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    slowness.port = server.sockets[0].getsockname()[1]
    try:
        yield slowness
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
