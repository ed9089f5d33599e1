# SPDX-License-Identifier: Apache-2.0
"""Records what the HF tokenizers library makes of strings, as test cases for our tokenizer.

usage: python3 tools/tinymodel/tokenizer_cases.py TOKENIZER_JSON SEED_CASES_JSON OUT_FOLDER

TOKENIZER_JSON   e.g. models/dsv4-tiny/tokenizer.json
SEED_CASES_JSON  a list of {"text": ...} whose texts are recorded too, e.g.
                 tokenizer_v3_cases.json of tests/recorded_texts.tar.xz
OUT_FOLDER       gets dsv4_tiny_tokenizer_cases.json (also for that archive), a list of {text, ids, decoded} (added tokens matched,
                 none skipped when decoding), dsv4_tiny_decode_cases.json, a list of {ids, decoded,
                 decoded_skip_special} of random ids, and unicode_classes.json, the code point ranges of
                 each class of a split pattern.

Needs `pip install tokenizers` (cases in the repository: version 0.23.3). Equal input gives equal output.
"""
import json
import os
import random
import sys

from tokenizers import Regex, Tokenizer, pre_tokenizers

CLASSES = [r"\s", r"\S", r"\p{L}", r"\P{L}", r"\p{M}", r"\p{N}", r"\p{P}", r"\p{S}"]

SENTENCES = """
The quick brown fox jumps over 13 lazy dogs, doesn't it?
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.
Voix ambiguë d’un cœur qui au zéphyr préfère les jattes de kiwis.
El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío.
Съешь же ещё этих мягких французских булок, да выпей чаю.
Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία.
דג סקרן שט בים מאוכזב ולפתע מצא חברה
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले
நீங்கள் எப்படி இருக்கிறீர்கள்?
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า
いろはにほへと ちりぬるを わかよたれそ つねならむ
イロハニホヘト チリヌルヲ ワカヨタレソ ツネナラム
키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.
天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。
我能吞下玻璃而不傷身體。123你好456
Pijamalı hasta yağız şoföre çabucak güvendi. İIıi
Příliš žluťoučký kůň úpěl ďábelské ódy
Ӏ ҕ ა ბ გ აბგ ԱԲԳ աբգ ᏣᎳᎩ ᠮᠣᠩᠭᠣᠯ ཀཁག ကခဂ កខគ
for (int i = 0; i < n; ++i) { a[i] += b[i] * 2.5e-3; }  // sum
def f(x: int) -> str:\\n\\treturn f"{x!r:>10}"\\n
https://example.org/path?q=1&r=%20#frag user@example.com
$12,345.67 €9.99 ¥1000 £5 ₹200 12½ ⅓ ² ³ Ⅷ ٣٤٥ ०१२ 𝟘𝟙𝟚 ①②③
""".strip().split("\n")

PIECES = [
    # whitespace of every kind, and what only looks like it
    " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", "\v", "\f", "\x1c", "\x1f", "\x85", "\xa0",
    "\u1680", "\u180e", "\u2000", "\u2009", "\u200a", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u2060",
    "\u3000", "\ufeff",
    # control characters
    "\x00", "\x01", "\x07", "\x08", "\x1b[0m", "\x7f", "\x80", "\x9f", "\xad",
    # letters, marks, numbers, punctuation, symbols
    "a", "A", "the", "word", "é", "e\u0301", "ñ", "n\u0303", "ß", "İ", "ı", "ſ", "K", "Å", "ﬁ", "ǆ", "ʰ", "ª",
    "\u0301", "\u0301\u0302\u0303", "\u20dd", "\u0903", "क्षि", "ক", "ำ", "각", "\u1100\u1161\u11a8", "你", "好", "一", "龥",
    "龦", "㐀", "𠀀", "ぁ", "゙", "ゟ", "゠", "ァ", "ヿ", "㍿", "｜", "0", "7", "12", "123", "1234", "1234567", "٣", "½", "Ⅷ",
    "²", "𝟘", "!", "...", "?!", "'s", "'", "\"", "``", "(", ")", "-", "—", "_", "__", "·", "、", "。", "「", "+", "<", ">",
    "=", "==", "|", "~", "$", "€", "©", "™", "^", "`", "¨", "\ufffd", "\ue000", "\u0378", "\U0010ffff",
    # emoji: plain, skin tone, ZWJ, flags, keycap, tag sequence, newer than Unicode 14
    "😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "1️⃣", "❤️", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "🫨", "🪿",
    "\U0001fadf", "\U0001e5d0", "\U00031350", "\U00016139", "\U00010d6e", "\u0897",
]


def added_texts(added, rng):
    """Added tokens alone, in text, side by side, and strings that miss one by little."""
    texts = []
    for token in added:
        texts += [token, token + token, f"a{token}b", f" {token} ", f"{token}\n", f"1{token}2", token[:-1], token[1:],
                  token[:-1] + " " + token[-1], token.upper(), token.replace("｜", "|"), "<" + token + ">",
                  token[:len(token) // 2] + token]
    for _ in range(150):
        texts.append("".join(rng.choice(added + ["<", "｜", ">", "think", "</", " ", "x", "7", "<｜", "｜>", "DSML"])
                             for _ in range(rng.randint(2, 9))))
    return texts


def all_texts(tokenizer_json, seed_cases):
    rng = random.Random(20260101)
    added = [t["content"] for t in tokenizer_json["added_tokens"]]
    texts = [case["text"] for case in seed_cases]
    texts += SENTENCES + PIECES + added_texts(added, rng)
    texts += [a + b for a in ("x", " ", "1", "!", "\n") for b in PIECES] + [b + "x" for b in PIECES]
    for _ in range(500):
        texts.append("".join(rng.choice(PIECES) for _ in range(rng.randint(2, 12))))
    for _ in range(150):
        texts.append(" ".join(rng.choice(" ".join(SENTENCES).split(" ")) for _ in range(rng.randint(2, 12))))
    for _ in range(150):
        texts.append("".join(chr(rng.choice((rng.randrange(0x20, 0x3000), rng.randrange(0xE000, 0x110000))))
                             for _ in range(rng.randint(1, 12))))
    texts += [c * n for c in ("a", " ", "\n", "7", "!", "好", "😀", "ab", " a", "\r\n") for n in (2, 3, 5, 17, 64, 257)]
    return list(dict.fromkeys(texts))


def random_ids(tokenizer_json):
    """Lists of ids whose bytes are mostly not UTF-8."""
    rng = random.Random(20260102)
    vocab = tokenizer_json["model"]["vocab"]
    # Tokens of one byte: the alphabet writes bytes below 0x80 that print as themselves.
    high_bytes = [i for t, i in vocab.items() if len(t) == 1 and ord(t) >= 0x80]
    added = [t["id"] for t in tokenizer_json["added_tokens"]]
    everything = sorted(vocab.values())
    lists = []
    for _ in range(300):
        pool = rng.choice(([high_bytes], [high_bytes, added], [everything], [high_bytes, everything, added]))
        lists.append([rng.choice(rng.choice(pool)) for _ in range(rng.randint(1, 12))])
    return lists


def class_ranges(pattern):
    """Code points that `pattern` matches, as inclusive ranges."""
    splitter = pre_tokenizers.Split(Regex(pattern), "removed")
    code_points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    ranges = []
    for start in range(0, len(code_points), 4096):
        chunk = code_points[start:start + 4096]
        kept = set("".join(t for t, _ in splitter.pre_tokenize_str("".join(map(chr, chunk)))))
        for c in chunk:
            if chr(c) in kept:
                continue
            if ranges and ranges[-1][1] == c - 1:
                ranges[-1][1] = c
            else:
                ranges.append([c, c])
    return ranges


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    tokenizer_path, seed_path, out = sys.argv[1:]
    with open(tokenizer_path, encoding="utf-8") as f:
        tokenizer_json = json.load(f)
    with open(seed_path, encoding="utf-8") as f:
        seed_cases = json.load(f)
    tokenizer = Tokenizer.from_file(tokenizer_path)
    cases = []
    for text in all_texts(tokenizer_json, seed_cases):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
    with open(os.path.join(out, "dsv4_tiny_tokenizer_cases.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=True) for c in cases) + "\n]\n")
    decode_cases = [{"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                     "decoded_skip_special": tokenizer.decode(ids, skip_special_tokens=True)}
                    for ids in random_ids(tokenizer_json)]
    with open(os.path.join(out, "dsv4_tiny_decode_cases.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=True) for c in decode_cases) + "\n]\n")
    with open(os.path.join(out, "unicode_classes.json"), "w", encoding="utf-8") as f:
        json.dump({pattern: class_ranges(pattern) for pattern in CLASSES}, f)
        f.write("\n")
    print(f"{len(cases)} cases, {len(decode_cases)} of decoding")


if __name__ == "__main__":
    main()
