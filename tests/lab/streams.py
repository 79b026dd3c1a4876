"""Many streaming requests at once, run inside a node by its own python3: what each of them ended with, as JSON.

`python3 - PORT COUNT MAX_TOKENS [GATE]`. With a GATE each keeps the second half of its request back until that file is there: it is in
flight for as long as the test wants, however fast or slow the machine is. Standard library only.
"""

from __future__ import annotations

import asyncio
import collections
import json
import pathlib
import sys

_BODY = {"prompt": "Hi", "stream": True, "temperature": 0, "ignore_eos": True}


async def one(port: int, max_tokens: int, gate: str) -> str:
    """`200 whole` is what a client wants; every other word is a request that was cut, or refused."""
    body = json.dumps({**_BODY, "max_tokens": max_tokens}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode() + body[:9])
        while gate and not pathlib.Path(gate).exists():  # noqa: ASYNC110, ASYNC240 - a file tells nobody when it comes
            await asyncio.sleep(0.05)
        writer.write(body[9:])
        await writer.drain()
        answer = await reader.read(-1)
        writer.close()
    except OSError as error:
        return f"{type(error).__name__}"
    status = answer.split(b" ", 2)[1].decode() if answer.startswith(b"HTTP/1.") else "nothing"
    return f"{status} {'whole' if b'data: [DONE]' in answer else 'cut'}"


async def every(port: int, count: int, max_tokens: int, gate: str = "") -> collections.Counter[str]:
    return collections.Counter(await asyncio.gather(*(one(port, max_tokens, gate) for _ in range(count))))


if __name__ == "__main__":
    port, count, max_tokens, *gate = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(every(int(port), int(count), int(max_tokens), *gate))))
