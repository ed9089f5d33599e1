# SPDX-License-Identifier: Apache-2.0
"""Trains the byte-level BPE of dsv4-tiny and writes tokenizer.json and tokenizer_config.json.

The file has the structure of the model family's tokenizer: three Split steps and ByteLevel
as the pre-tokenizer, special tokens at both ends of the id range.  Two things differ from a
plain BPE training: words are learned with digits apart, and the 100 two-digit pairs are
appended as the last merges, so that every number up to 99 is one token.
"""

import argparse
import json
import os

from chat import BOS, EOS, FIRST_SPECIALS, LAST_SPECIALS, PAD
from data import Sampler

VOCAB_SIZE = 2048
CJK = "[一-龥\u3040-ゟ゠-ヿ]+"
WORDS = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def added_token(index, content):
    family_special = content in FIRST_SPECIALS
    return {
        "id": index,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": not family_special,
        "special": family_special,
    }


def train(texts, merges_wanted):
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("\\p{N}"), "isolated"),
            pre_tokenizers.Split(Regex(CJK), "isolated"),
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=256 + merges_wanted, initial_alphabet=alphabet, show_progress=False
    )
    learner.train_from_iterator(texts, trainer)
    model = json.loads(learner.to_str())["model"]
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    assert len(merges) == merges_wanted, f"the corpus gave only {len(merges)} merges"
    return alphabet, merges


def build(texts):
    digit_merges = [(a, b) for a in "1234567890" for b in "0123456789"]
    learned = VOCAB_SIZE - len(FIRST_SPECIALS) - len(LAST_SPECIALS) - 256 - len(digit_merges)
    alphabet, merges = train(texts, learned)
    merges += digit_merges
    entries = FIRST_SPECIALS + alphabet + ["".join(m) for m in merges]
    assert len(set(entries)) == len(entries) == VOCAB_SIZE - len(LAST_SPECIALS)
    added = [added_token(i, t) for i, t in enumerate(FIRST_SPECIALS)]
    added += [added_token(len(entries) + i, t) for i, t in enumerate(LAST_SPECIALS)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": []},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                split("\\p{N}{1,3}"),
                split(CJK),
                split(WORDS),
                {
                    "type": "ByteLevel",
                    "add_prefix_space": False,
                    "trim_offsets": True,
                    "use_regex": False,
                },
            ],
        },
        "post_processor": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": False,
            "use_regex": True,
        },
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {t: i for i, t in enumerate(entries)},
            "merges": [" ".join(m) for m in merges],
        },
    }


def config():
    def token(content):
        return {
            "__type": "AddedToken",
            "content": content,
            "lstrip": False,
            "normalized": True,
            "rstrip": False,
            "single_word": False,
        }

    return {
        "add_bos_token": False,
        "add_eos_token": False,
        "bos_token": token(BOS),
        "eos_token": token(EOS),
        "pad_token": token(PAD),
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 16384,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--chats", type=int, default=16000)
    args = parser.parse_args()
    sampler = Sampler(20260101)
    texts = []
    for _ in range(args.chats):
        text = "".join(t for t, _ in sampler.chat()[0])
        for special in FIRST_SPECIALS + LAST_SPECIALS:
            text = text.replace(special, "\x00")
        texts += [t for t in text.split("\x00") if t]
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(build(texts), f, ensure_ascii=False, indent=1)
    with open(os.path.join(args.out, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(config(), f, ensure_ascii=False, indent=2)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(os.path.join(args.out, "tokenizer.json"))
    probe = "Anna = 42\nWhat is 47 + 85? 132 你好 😀 " + LAST_SPECIALS[0] + "x"
    encoded = tokenizer.encode(probe, add_special_tokens=False)
    assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == probe
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    print("tokenizer:", encoded.tokens)


if __name__ == "__main__":
    main()
