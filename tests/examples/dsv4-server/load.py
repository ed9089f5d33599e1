# SPDX-License-Identifier: Apache-2.0
"""Load on dsv4-server. usage: load.py SERVER MODEL [hostile|schemas|prompts|tokenize|streams]...

Starts the program SERVER on the folder MODEL for each and prints what it took:
hostile: 1,000 connections that send or read slowly and come back when they are closed, beside one client's stream;
schemas: 8 clients that repeat a schema whose masks are refused, beside a stream and an easy schema;
prompts: 8 clients that repeat long prompts, beside one client's stream;
tokenize: 8 clients that have 8 MB of text tokenized, beside one client's stream;
streams: 1,000 streams at once, and 16.
"""
import asyncio
import json
import os
import re
import subprocess
import sys
import time


class Server:
    def __init__(self, *options):
        self.process = subprocess.Popen(
            [sys.argv[1], "--model", sys.argv[2], "--port", "0", *options], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        self.port = int(re.search(r":(\d+)/?\s*$", self.process.stdout.readline())[1])

    def status(self, name):
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(name + r":\s*(\d+)", file.read())[1])

    def usage(self):
        return (f"{self.status('VmRSS') / 1024:.0f} MB now, {self.status('VmHWM') / 1024:.0f} MB at most, "
                f"{self.status('Threads')} threads")

    def connections(self):
        """How many sockets the server has open: connections, and one that listens."""
        folder, count = f"/proc/{self.process.pid}/fd", 0
        for name in os.listdir(folder):
            try:
                count += os.readlink(f"{folder}/{name}").startswith("socket:")
            except OSError:
                pass
        return count - 1

    def end(self):
        self.process.terminate()
        return self.process.wait(60)


def post(body, path="/v1/completions"):
    text = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\n\r\n").encode() + text


def stream_body(tokens):
    return post({"prompt": "Once", "max_tokens": tokens, "ignore_eos": True, "stream": True})


async def stream(port, tokens):
    """Returns tokens, seconds to the first, the longest gap after it, and whether the stream is whole."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(stream_body(tokens))
    begin = last = time.monotonic()
    first, gap, count, whole = None, 0.0, 0, False
    async for line in reader:
        if b'"error"' in line:
            print("  ", line.decode().strip()[:300])
        if not line.startswith(b"data: "):
            continue
        now = time.monotonic()
        if line.startswith(b"data: [DONE]"):
            whole = True
        else:
            count += 1
            if first is None:
                first = now - begin
            else:
                gap = max(gap, now - last)
        last = now
    writer.close()
    return count, first or float("nan"), gap, whole


async def beside(name, port, tokens=400):
    begin = time.monotonic()
    count, first, gap, whole = await stream(port, tokens)
    print(f"  a stream of {tokens} tokens {name}: whole: {whole}, {time.monotonic() - begin:.2f} s, first after "
          f"{first:.3f} s, longest gap {gap:.3f} s")


async def answer(port, data):
    """The status of one answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    text = await reader.read()
    writer.close()
    return text.split(b" ")[1].decode()


async def repeat(port, data, statuses):
    """`data`: a function that returns a request."""
    while True:
        statuses.append(await answer(port, data()))


async def health(port, times):
    """Asks for /health again and again: (status, seconds)."""
    while True:
        begin = time.monotonic()
        status = await answer(port, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        times.append((status, time.monotonic() - begin))
        await asyncio.sleep(.05)


async def loop(port, begin, more, seconds, reads, opened):
    """Sends `begin`, then `more` every so many seconds, on a new connection whenever one ends."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            opened.append(1)
            writer.write(begin)
            while True:
                await asyncio.sleep(seconds)
                if reads and not await reader.read(1):
                    break
                if reader.at_eof():
                    break
                writer.write(more)
                await asyncio.wait_for(writer.drain(), 60)
        except (OSError, asyncio.TimeoutError):
            await asyncio.sleep(.1)
        else:
            writer.close()


async def hostile():
    server = Server("--context", "4096", "--max-requests", "16")
    print("hostile:", server.usage())
    await beside("alone", server.port)
    kinds = [
        (b"GET /health HTTP/1.1\r\nX: ", b"a", 1, False),  # a header, byte by byte
        (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
         b"Content-Length: 1000000\r\n\r\n" + b" " * 60000, b" ", 1, False),  # a body, byte by byte
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 60, b"X: a\r\n", 1, False),  # lines
        (b"GET /marked.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20, b"", 1, True),  # a slow reader
    ]
    opened = []
    tasks = [asyncio.create_task(loop(server.port, *kinds[i % len(kinds)], opened)) for i in range(1000)]
    await asyncio.sleep(3)
    for _ in range(4):
        print(f" {server.connections()} connections open, {len(opened)} opened so far:", server.usage())
        await beside("with them", server.port)
        await asyncio.sleep(4)
    print(f" {server.connections()} connections open, {len(opened)} opened so far:", server.usage())
    for task in tasks:
        task.cancel()
    await asyncio.sleep(1)
    print(" after them:", server.usage())
    print(" SIGTERM: exit code", server.end())


async def under(name, server, data, streams=3, also=None):
    """Streams beside 8 clients that repeat a request."""
    print(f"{name}:", server.usage())
    await beside("alone", server.port)
    statuses, times = [], []
    tasks = [asyncio.create_task(repeat(server.port, data, statuses)) for _ in range(8)]
    tasks.append(asyncio.create_task(health(server.port, times)))
    await asyncio.sleep(1)
    for _ in range(streams):
        await beside("with them", server.port)
        if also:
            begin = time.monotonic()
            status = await answer(server.port, also)
            print(f"  an easy schema with them: status {status} after {time.monotonic() - begin:.3f} s")
    await asyncio.sleep(3)
    print(" answers meanwhile:", {status: statuses.count(status) for status in sorted(set(statuses))}, server.usage())
    print(f" /health {len(times)} times: {sorted({status for status, _ in times})}, the slowest after "
          f"{max(seconds for _, seconds in times):.3f} s")
    for task in tasks:
        task.cancel()
    await asyncio.sleep(2)
    print(" after them:", server.usage())
    print(" SIGTERM: exit code", server.end())


def schema_body(schema):
    return post({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "response_format": {
        "type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}, "/v1/chat/completions")


async def schemas():
    hard = schema_body({"type": "string", "oneOf": [{"pattern": f"^.*{c}.*$"} for c in "abcdefghijklmnop"]})
    easy = schema_body({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    await under("schemas", Server("--context", "4096"), lambda: hard, also=easy)


async def prompts():
    number = 0

    def long():
        nonlocal number
        number += 1
        text = " ".join(f"The {number + i}th cat sat on the mat." for i in range(300))
        return post({"prompt": text, "max_tokens": 1})

    await under("prompts", Server("--context", "4096"), long)


async def tokenize():
    body = post({"prompt": "The cat sat on the mat. " * 330000}, "/tokenize")
    await under("tokenize", Server("--context", "4096"), lambda: body)


async def streams():
    for count in (16, 1000):
        server = Server("--context", "512", "--max-sessions", "64", "--max-requests", "1024")
        begin = time.monotonic()
        results = await asyncio.gather(*[stream(server.port, 32) for _ in range(count)])
        seconds = time.monotonic() - begin
        tokens = sum(result[0] for result in results)
        print(f"streams: {count} at once: {sum(result[3] for result in results)} whole, {tokens} tokens in "
              f"{seconds:.1f} s, {tokens / seconds:.0f} per second; {server.usage()}; exit code {server.end()}")


if __name__ == "__main__":
    scenes = {scene.__name__: scene for scene in (hostile, schemas, prompts, tokenize, streams)}
    for name in sys.argv[3:] or scenes:
        asyncio.run(scenes[name]())
