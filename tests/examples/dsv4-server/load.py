# SPDX-License-Identifier: Apache-2.0
"""Load on dsv4-server. usage: load.py SERVER MODEL [hostile|streams|schemas]...

Starts the program SERVER on the folder MODEL for each and prints what it took:
hostile: 1,000 connections that send or read slowly, or have endless headers, beside one client's stream;
schemas: 8 clients that repeat a schema whose masks are refused, beside one client's stream;
streams: 1,000 streams at once, and 16.
"""
import asyncio
import json
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
    return count, first, gap, whole


async def beside(name, port):
    count, first, gap, whole = await stream(port, 400)
    print(f"  a stream of 400 tokens {name}: whole: {whole}, first after {first:.3f} s, longest gap {gap:.3f} s")


async def connect(port, data, repeat, seconds, read):
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        while True:
            await asyncio.sleep(seconds)
            if read:
                if not await reader.read(1):
                    break
            writer.write(repeat)
            await asyncio.wait_for(writer.drain(), 60)
    except (OSError, asyncio.TimeoutError):
        pass


async def hostile():
    server = Server("--context", "4096")
    print("hostile:", server.usage())
    await beside("alone", server.port)
    kinds = [
        (b"GET /health HTTP/1.1\r\nX: ", b"a", 1, False),  # a header, byte by byte
        (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
         b"Content-Length: 1000000\r\n\r\n" + b" " * 60000, b" ", 1, False),  # a body, byte by byte
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 90, b"X: a\r\n" * 99, .1, False),
        (b"GET /marked.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20, b"", 1, True),  # a slow reader
    ]
    tasks = [asyncio.create_task(connect(server.port, *kinds[i % len(kinds)])) for i in range(1000)]
    await asyncio.sleep(3)
    print(" with 1,000 connections:", server.usage())
    for _ in range(3):
        await beside("with them", server.port)
    print(" after them:", server.usage())
    for task in tasks:
        task.cancel()
    print(" SIGTERM: exit code", server.end())


async def schemas():
    server = Server("--context", "4096")
    body = post({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "response_format": {
        "type": "json_schema", "json_schema": {"name": "x", "schema": {
            "type": "string", "oneOf": [{"pattern": f"^.*{c}.*$"} for c in "abcdefghijklmnop"]}}}},
        "/v1/chat/completions")
    print("schemas:", server.usage())
    await beside("alone", server.port)
    answers = []

    async def repeat():
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(body)
            answers.append((await reader.read()).split(b" ")[1])
            writer.close()

    tasks = [asyncio.create_task(repeat()) for _ in range(8)]
    await asyncio.sleep(1)
    for _ in range(3):
        await beside("with them", server.port)
    print(" answers meanwhile:", {status.decode(): answers.count(status) for status in set(answers)}, server.usage())
    for task in tasks:
        task.cancel()
    print(" SIGTERM: exit code", server.end())


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
    for name in sys.argv[3:] or ["hostile", "schemas", "streams"]:
        asyncio.run({"hostile": hostile, "schemas": schemas, "streams": streams}[name]())
