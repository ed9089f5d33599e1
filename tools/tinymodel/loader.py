# SPDX-License-Identifier: Apache-2.0
"""Background processes that make chats, tokenise them and pack them into rows."""

import collections
import multiprocessing
import os
import queue as queues
import random
import threading

import numpy as np

from chat import FIRST_SPECIALS, PAD
from data import Sampler

PAD_ID = FIRST_SPECIALS.index(PAD)
PROMPT, ANSWER = 1, 2  # token codes: 0 no loss, 1 prompt, 2 + kind of chat for answers


class Packer:
    """Chats shorter than 128 tokens start at multiples of 4, longer ones at multiples of 128."""

    def __init__(self, length):
        self.length = length
        self.short, self.long = collections.deque(), collections.deque()
        self.pending = {False: 0, True: 0}

    def add(self, ids, codes):
        if len(ids) <= self.length:
            is_long = len(ids) >= 128
            (self.long if is_long else self.short).append((ids, codes))
            self.pending[is_long] += len(ids)

    def ready(self):
        return sum(self.pending.values()) > 8 * self.length

    def _take(self, pool, room, best):
        """The first chat of the pool that fits, or the longest one that fits."""
        pick = None
        for i, (ids, _) in enumerate(pool):
            if len(ids) <= room and (pick is None or len(ids) > len(pool[pick][0])):
                pick = i
                if not best:
                    break
        if pick is None:
            return None
        chat = pool[pick]
        del pool[pick]
        self.pending[pool is self.long] -= len(chat[0])
        return chat

    def row(self):
        n = self.length
        tokens, doc, code = (
            np.full(n, PAD_ID, np.int16),
            np.zeros(n, np.int16),
            np.zeros(n, np.uint8),
        )
        at, number = 0, 0
        while at < n:
            gap = -at % 128
            if gap:
                chat = self._take(self.short, gap, True)
                if chat is None:
                    at += gap
                    continue
            else:
                pools = (
                    (self.long, self.short)
                    if self.pending[True] > self.pending[False]
                    else (self.short, self.long)
                )
                chat = self._take(pools[0], n - at, False) or self._take(pools[1], n - at, False)
                if chat is None:
                    break
            ids, codes = chat
            number += 1
            tokens[at : at + len(ids)] = ids
            code[at : at + len(ids)] = codes
            doc[at:] = number
            at += (len(ids) + 3) // 4 * 4
        return tokens, doc, code


def encode_chats(tokenizer, chats):
    """[(pieces, kind)] -> [(ids, codes)]"""
    encoded = iter(
        tokenizer.encode_batch(
            [text for pieces, _ in chats for text, _ in pieces], add_special_tokens=False
        )
    )
    result = []
    for pieces, kind in chats:
        ids, codes = [], []
        for _, written in pieces:
            piece = next(encoded).ids
            ids += piece
            codes += [ANSWER + kind if written else PROMPT] * len(piece)
        codes[0] = 0
        result.append((ids, codes))
    return result


def work(index, seed, tokenizer_file, length, out, level):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(tokenizer_file)
    sampler = Sampler(seed * 1009 + index)
    packer, rows = Packer(length), []
    while True:
        for ids, codes in encode_chats(tokenizer, [sampler.chat(level.value) for _ in range(64)]):
            packer.add(ids, codes)
        while packer.ready():
            rows.append(packer.row())
        if len(rows) >= 8:
            out.put(tuple(np.stack(part) for part in zip(*rows)))
            rows = []


class Loader:
    def __init__(self, tokenizer_file, length, workers, seed, level):
        context = multiprocessing.get_context("fork")
        self.queue = context.Queue(maxsize=2 * workers)
        self.level = context.Value(
            "d", level
        )  # read by the workers: difficulty of the recall texts
        self.fresh, self.seen = collections.deque(), collections.deque(maxlen=40000)
        self.reused = self.used = 0
        self.rng = random.Random(seed)
        self.processes = [
            context.Process(
                target=work,
                args=(i, seed, tokenizer_file, length, self.queue, self.level),
                daemon=True,
            )
            for i in range(workers)
        ]
        for process in self.processes:
            process.start()
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self):
        import time

        while True:
            if len(self.fresh) > 300:
                time.sleep(0.02)
                continue
            try:
                self.fresh.extend(zip(*self.queue.get(timeout=1)))
            except queues.Empty:
                pass

    def batch(self, rows):
        """-> tokens, doc, code, each [rows, length].  Falls back to rows seen before when the
        workers lag."""
        import time

        while len(self.fresh) + len(self.seen) < max(rows, 64):
            time.sleep(0.01)
        picked = []
        for _ in range(rows):
            if self.fresh:
                picked.append(self.fresh.popleft())
                self.seen.append(picked[-1])
            else:
                picked.append(self.seen[self.rng.randrange(len(self.seen))])
                self.reused += 1
        self.used += rows
        return tuple(np.stack(part) for part in zip(*picked))

    def close(self):
        for process in self.processes:
            process.terminate()
