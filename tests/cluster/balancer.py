"""A load balancer of TCP connections: ``balancer.py ADDRESS:PORT BACKEND…``, each to one that takes it."""

from __future__ import annotations

import asyncio
import itertools
import sys
from contextlib import suppress

host, _, port = sys.argv[1].partition(":")
backends = sys.argv[2:]
turn = itertools.count()


async def pump(read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await read.read(1 << 16):
            write.write(data)
            await write.drain()
    with suppress(OSError):
        write.close()


async def serve(read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
    first = next(turn)
    for number in range(len(backends)):
        backend = backends[(first + number) % len(backends)]
        try:
            there, back = await asyncio.wait_for(asyncio.open_connection(backend, int(port)), 2)
        except (TimeoutError, OSError):
            continue
        await asyncio.gather(pump(read, back), pump(there, write))
        return
    write.transport.abort()


async def main() -> None:
    server = await asyncio.start_server(serve, host, int(port))
    await server.serve_forever()


asyncio.run(main())
