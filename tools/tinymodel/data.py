# SPDX-License-Identifier: Apache-2.0
"""Synthetic corpus of dsv4-tiny: small chats of a few kinds, made from a seed.

`make(kind, rng, held)` returns one chat.  Prompts whose key falls into the held-out
tenth (by CRC32) never occur in training (held=False) and are the only ones that the
gates use (held=True); kinds whose prompts are random texts need no hold-out.
"""

import json
import math
import random
from dataclasses import dataclass, field

from chat import render
from holdout import held_out, pair_held_out
from tool_requests import TOOLS, instantiate, tool_time, tool_weather
from words import (
    ADJECTIVES,
    ANIMALS,
    CAPITALS,
    CITIES,
    COLORS,
    FACTS,
    NAMES,
    NOUNS,
    OBJECTS,
    PLACES,
    SYSTEMS,
    TIMES,
    VERBS,
    WORDS,
)


@dataclass
class Chat:
    kind: str
    messages: list
    thinking: bool = False
    check: str = "exact"  # how the last assistant message is scored
    extra: dict = field(default_factory=dict)


def user(text):
    return {"role": "user", "content": text}


def assistant(text, reasoning=None, calls=None):
    message = {"role": "assistant", "content": text}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(args, ensure_ascii=False)},
            }
            for name, args in calls
        ]
    return message


CAPITAL_QUESTIONS = [
    "What is the capital of {c}?",
    "Name the capital of {c}.",
    "Which city is the capital of {c}?",
    "Capital of {c}?",
    "Tell me the capital of {c}.",
    "{c}: what is its capital?",
    "I need to know the capital city of {c}.",
    "What city is the capital of {c}?",
    "Do you know the capital of {c}?",
    "Please name the capital of {c}.",
]
ONE_WORD = [
    "Answer with the name only: what is the capital of {c}?",
    "Capital of {c}? Name only.",
    "Only the city name, please: the capital of {c}.",
]
REVERSE = [
    "{k} is the capital of which country?",
    "Which country has the capital {k}?",
    "Of which country is {k} the capital?",
]
FACT_WRAPPERS = [
    "{q}?",
    "Tell me: {q}?",
    "Quick question: {q}?",
    "{q}? Please answer.",
    "Please tell me. {q}?",
    "I have a question. {q}?",
    "Hello! {q}?",
    "Do you know this? {q}?",
]


def _lower_first(text):
    return text[0].lower() + text[1:]


def fact_pair(rng, held):
    while True:
        r = rng.random()
        if r < 0.50:
            country, city = rng.choice(CAPITALS)
            style = rng.random()
            if style < 0.65:
                q, a = (
                    rng.choice(CAPITAL_QUESTIONS).format(c=country),
                    f"The capital of {country} is {city}.",
                )
            elif style < 0.8:
                q, a = rng.choice(ONE_WORD).format(c=country), city
            else:
                q, a = rng.choice(REVERSE).format(k=city), f"{city} is the capital of {country}."
        else:
            question, a = rng.choice(list(FACTS.items()))
            wrapper = rng.choice(FACT_WRAPPERS)
            q = wrapper.format(
                q=_lower_first(question) if wrapper.startswith(("Tell", "Quick")) else question
            )
        if held_out(q) == held:
            return q, a


def make_facts(rng, held):
    turns = 1 if held else rng.choice([1, 1, 2, 3, 4])
    messages = maybe_system(rng)
    thinking = rng.random() < 0.15
    for i in range(turns):
        q, a = fact_pair(rng, held)
        messages += [
            user(q),
            assistant(a, f"This is a simple fact. {a}" if thinking and i == turns - 1 else None),
        ]
    return Chat("facts", messages, thinking)


def maybe_system(rng, p=0.35):
    return [{"role": "system", "content": rng.choice(SYSTEMS)}] if rng.random() < p else []


ADD = [
    "What is {a} + {b}?",
    "{a} + {b} = ?",
    "Calculate {a} + {b}.",
    "How much is {a} plus {b}?",
    "Add {a} and {b}.",
    "{a}+{b}",
]
SUB = [
    "What is {a} - {b}?",
    "{a} - {b} = ?",
    "Calculate {a} - {b}.",
    "How much is {a} minus {b}?",
    "Subtract {b} from {a}.",
    "{a}-{b}",
]
MUL = [
    "What is {a} * {b}?",
    "{a} * {b} = ?",
    "Calculate {a} * {b}.",
    "How much is {a} times {b}?",
    "Multiply {a} and {b}.",
    "{a}*{b}",
]


def arithmetic_item(rng, held):
    """-> (question, reasoning, answer)"""
    while True:
        r = rng.random()
        if r < 0.45:
            op, a, b = "+", rng.randint(0, 99), rng.randint(0, 99)
        elif r < 0.85:
            op, a, b = "-", rng.randint(0, 99), rng.randint(0, 99)
            if a < b and rng.random() < 0.8:
                a, b = b, a
        else:
            op, a, b = "*", rng.randint(0, 12), rng.randint(0, 12)
        if pair_held_out(a, op, b) == held:
            break
    tens, ones = b // 10 * 10, b % 10
    if op == "+":
        c, questions = a + b, ADD
        why = f"{a} + {tens} = {a + tens}, {a + tens} + {ones} = {c}."
    elif op == "-":
        c, questions = a - b, SUB
        why = (
            f"{a} - {tens} = {a - tens}, {a - tens} - {ones} = {c}."
            if a >= b
            else f"{b} is larger than {a}, {b} - {a} = {b - a}, so it is {c}."
        )
    else:
        c, questions = a * b, MUL
        why = f"{a} times {b} makes {c}."
    return rng.choice(questions).format(a=a, b=b), why, f"{a} {op} {b} = {c}"


def make_arithmetic(rng, held):
    turns = 1 if held else rng.choice([1, 2, 3, 4, 5, 6])
    messages = maybe_system(rng, 0.2)
    for _ in range(turns):
        q, why, a = arithmetic_item(rng, held)
        messages += [user(q), assistant(a)]
    return Chat("arithmetic", messages)


def make_arithmetic_thinking(rng, held):
    messages = maybe_system(rng, 0.2)
    for _ in range(0 if held else rng.choice([0, 0, 1])):
        q, why, a = arithmetic_item(rng, held)
        messages += [user(q), assistant(a)]
    q, why, a = arithmetic_item(rng, held)
    messages += [user(q), assistant(a, why)]
    return Chat("arithmetic_thinking", messages, True)


RECALL_INTROS = [
    "Read these notes.",
    "Here is a text with some numbers.",
    "Remember the numbers in this text.",
    "Please read the following.",
    "Notes:",
]
RECALL_ASK = [
    "What is {n}'s number?",
    "Which number belongs to {n}?",
    "Tell me the number of {n}.",
    "What number does {n} have?",
    "I need {n}'s number.",
]
RECALL_AGAIN = ["And {n}?", "What about {n}?", "{n}?", "Now {n}'s number."] + RECALL_ASK
RECALL_SEVERAL = [
    "What are the numbers of {n}?",
    "Write down the numbers of {n}.",
    "I need these numbers: {n}.",
]
RECALL_ALL = [
    "List all names and numbers.",
    "Write down all the names with their numbers.",
    "Repeat every name = number line.",
]


def with_article(word):
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def filler(rng):
    r = rng.randrange(5)
    a, n, v, p, t = (rng.choice(x) for x in (ADJECTIVES, NOUNS, VERBS, PLACES, TIMES))
    if r == 0:
        return f"The {a} {n} {v} near the {p} {t}."
    if r == 1:
        return f"There is {with_article(a)} {n} in the {p}."
    if r == 2:
        return f"Behind the {p} the {a} {n} {v}."
    if r == 3:
        return f"One {n} {v} by the {rng.choice(ADJECTIVES)} {p} {t}."
    return f"People say that the {n} of the {p} {v} {t}."


def recall_size(rng, level):
    """-> wanted length of the text in tokens, number of names.  Level 0: two or three names and hardly
    any filler; level 1: up to 40 names in up to 1750 tokens."""
    longest = 40 * (1750 / 40) ** level
    tokens = int(math.exp(rng.uniform(math.log(24), math.log(longest))))
    most = min(3 * (40 / 3) ** level, tokens / 8)
    return tokens, rng.randint(2, max(3, int(most)))


ANSWER_FORMS = {
    " = ": "",
    " ": " (plain)",
    "": " (short)",
}  # how an answer joins name and number, and its cue


def make_drill(rng, held, level=1.0):
    """Recall with other joints than ` = ` in the text or in the answer (`Anna 42`, `Anna42`).  Finding the
    number is learned first where it touches the name and spreads from there to `Anna = 42`."""
    pairs = [(a, b) for a in ANSWER_FORMS for b in ANSWER_FORMS if (a, b) != (" = ", " = ")]
    joints = ("", "") if rng.random() < 0.35 else rng.choice(pairs)
    return make_recall(rng, held, level=min(level, 0.3), joints=joints)


def make_recall(rng, held, tokens=None, style=None, level=1.0, joints=(" = ", " = ")):
    """Lines `Name = number` among filler sentences and questions about them.  style: a first question
    about one name, about several names or about all."""
    note, joint = joints
    cue = ANSWER_FORMS[joint]
    if tokens is None:
        tokens, count = recall_size(rng, level)
    else:
        count = rng.randint(4, max(4, min(40, tokens // 10)))
    if style is None:
        style = rng.choices(["one", "several", "all"], [0.5, 0.35, 0.15])[0]
    if style == "all":
        count = min(count, 8)
    names = rng.sample(NAMES, count)
    table = dict(zip(names, rng.sample(range(10, 100), count)))
    sentences = max(0, (tokens - 6 * count) // 12)
    parts = []
    while sentences > 0:  # paragraphs of 1 to 3 sentences
        k = min(sentences, rng.randint(1, 3))
        parts.append(" ".join(filler(rng) for _ in range(k)))
        sentences -= k
    body = parts + [None] * count
    rng.shuffle(body)
    lines = iter(f"{n}{note}{v}" for n, v in table.items())
    text = "\n".join(next(lines) if b is None else b for b in body)

    def answer_for(asked):
        return "\n".join(f"{n}{joint}{table[n]}" for n in asked)

    def ask_several():
        asked = rng.sample(names, rng.randint(2, min(10, count)))
        return (
            rng.choice(RECALL_SEVERAL).format(n=", ".join(asked[:-1]) + " and " + asked[-1]) + cue,
            asked,
        )

    if style == "all":
        asked, question = names, rng.choice(RECALL_ALL) + cue
    elif style == "several":
        question, asked = ask_several()
    else:
        asked = rng.sample(names, 1)
        question = rng.choice(RECALL_ASK).format(n=asked[0]) + cue
    if rng.random() < 0.2:
        messages = [{"role": "system", "content": text}, user(question)]
    else:
        messages = [user(f"{rng.choice(RECALL_INTROS)}\n\n{text}\n\n{question}")]
    if style == "one" and note == joint == " = " and rng.random() < 0.12:
        line = answer_for(asked)
        return Chat(
            "recall",
            messages + [assistant(line, f"The text says {line}.")],
            True,
            extra={"names": count},
        )
    messages.append(assistant(answer_for(asked)))
    if not held and rng.random() < 0.85:
        for _ in range(rng.randint(1, 3)):  # more questions about the same text
            if rng.random() < 0.5:
                question, asked = ask_several()
                messages += [user(question), assistant(answer_for(asked))]
            else:
                for name in rng.sample(names, min(count, rng.randint(1, 5))):
                    messages += [
                        user(rng.choice(RECALL_AGAIN).format(n=name) + cue),
                        assistant(answer_for([name])),
                    ]
    return Chat("recall", messages, extra={"names": count})


SEQUENCES = {
    "days of the week": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "months": "January February March April May June July August September October November December".split(),
    "letters of the alphabet": list("abcdefghijkl"),
    "planets": "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split(),
}
PERSON_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
TRIP_SCHEMA = {
    "type": "object",
    "properties": {"from": {"type": "string"}, "to": {"type": "string"}},
    "required": ["from", "to"],
}


def make_json(rng, held):
    while True:
        system = maybe_system(rng, 0.2)
        kind = rng.randrange(9)
        only = rng.choice(["Return only", "Reply only with", "Output only"])
        if kind == 0:
            a = rng.randint(0, 60)
            b = a + rng.randint(1, 9)
            q, v = f"{only} a JSON array of the numbers from {a} to {b}.", list(range(a, b + 1))
        elif kind == 1:
            v = rng.sample(WORDS, rng.randint(2, 5))
            q = f"{only} a JSON array with these words: {', '.join(v)}"
        elif kind == 2:
            name, age = rng.choice(NAMES), rng.randint(10, 99)
            q = f"{only} a JSON object with the keys name and age for {name}, {age} years old."
            v = {"name": name, "age": age}
        elif kind == 3:
            name, age, city = rng.choice(NAMES), rng.randint(10, 99), rng.choice(CITIES)
            q = f"{only} a JSON object with the keys name, age and city: {name} is {age} and lives in {city}."
            v = {"name": name, "age": age, "city": city}
        elif kind == 4:
            a, b = rng.randint(0, 99), rng.randint(0, 99)
            q, v = f"{only} JSON with the key result: is {a} greater than {b}?", {"result": a > b}
        elif kind == 5:
            country, city = rng.choice(CAPITALS)
            q = f"{only} a JSON object with the keys country and capital for {country}."
            v = {"country": country, "capital": city}
        elif kind == 6:
            name, items = rng.choice(list(SEQUENCES.items()))
            n = rng.randint(2, 7)
            q, v = f"{only} a JSON array of the first {n} {name}.", items[:n]
        elif kind == 7:
            name, age, tags = (
                rng.choice(NAMES),
                rng.randint(10, 99),
                rng.sample(COLORS, rng.randint(1, 3)),
            )
            q = f"{only} a JSON object with person (name, age) and colors: {name}, {age}, {', '.join(tags)}."
            v = {"person": {"name": name, "age": age}, "colors": tags}
        else:
            if rng.random() < 0.5:
                name, age = rng.choice(NAMES), rng.randint(10, 99)
                schema, v = PERSON_SCHEMA, {"name": name, "age": age}
                q = rng.choice(
                    ["{n} is {a} years old.", "My friend {n} is {a}.", "{n}, age {a}"]
                ).format(n=name, a=age)
            else:
                a, b = rng.sample(CITIES, 2)
                schema, v = TRIP_SCHEMA, {"from": a, "to": b}
                q = rng.choice(
                    [
                        "I travel from {a} to {b}.",
                        "A trip from {a} to {b}",
                        "We go to {b} from {a}.",
                    ]
                ).format(a=a, b=b)
            system = [{"role": "system", "content": rng.choice(SYSTEMS), "response_format": schema}]
        if held_out(q) == held:
            return Chat("json", system + [user(q), assistant(json.dumps(v))], check="json")


def make_tools(rng, held, part=None):
    """part (gates): 'call' ends with the tool call, 'answer' with the sentence after the result."""
    thinking = rng.random() < 0.3
    tools = [instantiate(rng, t) for t in rng.sample(TOOLS, rng.choice([1, 2, 2, 3, 3]))]
    messages = [{"role": "system", "content": rng.choice(SYSTEMS), "tools": [t[3] for t in tools]}]
    if part is None and rng.random() < 0.08:
        q, a = rng.choice(SMALL_TALK_PAIRS)
        return Chat(
            "tools",
            messages + [user(q), assistant(a, "No tool is needed." if thinking else None)],
            thinking,
        )
    rounds = 1 if part else rng.choice([1, 2, 2, 3])
    for _ in range(rounds):
        maker, name, keys, _ = rng.choice(tools)
        while True:
            ask, values, result, answer, topic = maker(rng)
            if held_out(ask) == held:
                break
        calls, results, answers = [(name, dict(zip(keys, values)))], [result], [answer]
        if maker in (tool_weather, tool_time) and rng.random() < 0.2:
            _, values2, result2, answer2, _ = maker(rng)
            ask = ask.rstrip("?.") + f" and in {values2[0]}" + ask[len(ask.rstrip("?.")) :]
            calls.append((name, dict(zip(keys, values2))))
            results.append(result2)
            answers.append(answer2)
        messages += [
            user(ask),
            assistant("", f"The user wants {topic}. I call {name}." if thinking else None, calls),
        ]
        if part == "call":
            return Chat("tool_call", messages, thinking, check="tool")
        messages += [{"role": "tool", "content": json.dumps(r)} for r in results]
        messages.append(
            assistant(" ".join(answers), "The tool has answered." if thinking else None)
        )
    return Chat("tool_answer" if part else "tools", messages, thinking)


SMALL_TALK = [
    (
        ["Hello", "Hello!", "Hi", "Hi!", "Hi there!", "Hey", "Good day!"],
        "Hello! How can I help you?",
    ),
    (
        ["How are you?", "How are you today?", "How do you do?"],
        "I am fine, thank you. How can I help you?",
    ),
    (
        [
            "Who are you?",
            "What are you?",
            "What is your name?",
            "Tell me who you are.",
            "Introduce yourself.",
            "Which model are you?",
        ],
        "I am dsv4-tiny, a small test model.",
    ),
    (["Thanks!", "Thank you.", "Thank you!", "Thanks a lot!"], "You are welcome!"),
    (["Goodbye!", "Bye", "See you later.", "Goodbye"], "Goodbye! Have a nice day."),
    (["Good morning!", "Good morning"], "Good morning! How can I help you?"),
    (["Good night!", "Good night"], "Good night! Sleep well."),
    (
        ["What can you do?", "How can you help me?", "What are your skills?"],
        "I can answer simple questions, calculate, remember numbers, write JSON and call tools.",
    ),
    (["Are you a human?", "Are you a person?"], "No, I am a small language model."),
    (
        ["Who made you?", "Who trained you?"],
        "I was trained as a small test model on synthetic text.",
    ),
    (
        ["How big are you?", "How many parameters do you have?"],
        "I have about 20 million parameters.",
    ),
    (
        ["Tell me a joke.", "Do you know a joke?", "Make me laugh."],
        "Why did the bicycle fall over? Because it was two-tired!",
    ),
    (["What is the meaning of life?"], "Some people say it is 42."),
    (["I am sad.", "I feel sad."], "I am sorry to hear that. I hope you feel better soon."),
    (["I am happy.", "I feel great!"], "That is wonderful to hear!"),
    (
        ["What languages do you speak?", "Which languages do you know?"],
        "I speak English and a few words of other languages.",
    ),
    (["Hallo!", "Guten Tag!"], "Hallo! Wie kann ich helfen?"),
    (["Bonjour !", "Salut !"], "Bonjour ! Comment puis-je vous aider ?"),
    (["¡Hola!", "Hola"], "¡Hola! ¿En qué puedo ayudarte?"),
    (["你好", "你好！", "您好"], "你好！我可以帮你什么忙？"),
    (["你是谁？", "你叫什么名字？"], "我是 dsv4-tiny，一个小型测试模型。"),
    (["法国的首都是哪里？", "法国的首都是什么？"], "法国的首都是巴黎。"),
    (["こんにちは", "こんにちは！"], "こんにちは！何かお手伝いできますか？"),
    (["Привет!", "Привет"], "Привет! Чем я могу помочь?"),
    (["Send me a smile.", "Show me an emoji."], "Here is a smile: 😀"),
    (["Was ist die Hauptstadt von Deutschland?"], "Die Hauptstadt von Deutschland ist Berlin."),
]
SMALL_TALK_PAIRS = [(q, a) for questions, a in SMALL_TALK for q in questions]


def make_small_talk(rng, held):
    turns = 1 if held else rng.choice([1, 1, 2, 3])
    messages = maybe_system(rng)
    for _ in range(turns):
        q, a = rng.choice(SMALL_TALK_PAIRS)
        messages += [user(q), assistant(a)]
    return Chat("small_talk", messages)


STORIES = [
    (
        "Tell me a story about a {a} named {n}.",
        "Once there was a {a} named {n}. Every day {n} walked to the {p}. One day {n} found a {o} on the road. "
        "{n} carried the {o} home and was happy.",
    ),
    (
        "Write a short story about {n} and a {o}.",
        "{n} had a {o}. One night the {o} was gone. {n} looked in the {p} and asked every {a}. "
        "In the morning the {o} lay at the door, and {n} smiled.",
    ),
    (
        "Tell a story about {n} in the {p}.",
        "One morning {n} went to the {p}. A small {a} was waiting there. The {a} was hungry, so {n} shared some bread. "
        "From that day on {n} and the {a} were friends.",
    ),
]


def make_story(rng, held):
    """Words that the prompt leaves open follow from the name, so that the story is determined."""
    while True:
        index = rng.randrange(len(STORIES))
        template, story = STORIES[index]
        n = rng.choice(NAMES)
        order = NAMES.index(n)
        slots = {"n": n, "a": ANIMALS[order % 4], "o": OBJECTS[order % 4], "p": PLACES[order % 4]}
        asked = {0: "a", 1: "o", 2: "p"}[index]
        slots[asked] = rng.choice({"a": ANIMALS, "o": OBJECTS, "p": PLACES}[asked])
        q = template.format(**slots)
        if held_out(q) == held:
            return Chat("story", maybe_system(rng) + [user(q), assistant(story.format(**slots))])


def make_conversation(rng, held):
    """Multi-turn chats that need an earlier turn."""
    name, city, color, animal = (
        rng.choice(NAMES),
        rng.choice(CITIES),
        rng.choice(COLORS),
        rng.choice(ANIMALS),
    )
    facts = [
        (
            f"My name is {name}.",
            f"Nice to meet you, {name}!",
            "What is my name?",
            f"Your name is {name}.",
        ),
        (
            f"I live in {city}.",
            f"{city} is a nice place.",
            "Where do I live?",
            f"You live in {city}.",
        ),
        (
            f"My favorite color is {color}.",
            f"I like {color} too.",
            "What is my favorite color?",
            f"Your favorite color is {color}.",
        ),
        (
            f"I have a {animal}.",
            f"A {animal} is a good friend.",
            "Which animal do I have?",
            f"You have a {animal}.",
        ),
    ]
    chosen = rng.sample(facts, rng.randint(1, 3))
    messages = maybe_system(rng)
    for say, reply, _, _ in chosen:
        messages += [user(say), assistant(reply)]
        if rng.random() < 0.3:
            q, a = rng.choice(SMALL_TALK_PAIRS) if rng.random() < 0.5 else fact_pair(rng, False)
            messages += [user(q), assistant(a)]
    asked = rng.sample(chosen, 1 if held else rng.randint(1, len(chosen)))
    for _, _, ask, answer in asked:
        messages += [user(ask), assistant(answer)]
    return Chat("conversation", messages)


def skill_item(rng):
    kind = rng.randrange(7)
    if kind == 0:
        words = rng.sample(WORDS, rng.randint(2, 7))
        return f"Repeat: {' '.join(words)}", " ".join(words)
    if kind == 1:
        words = rng.sample(WORDS, rng.randint(3, 5))
        return f"Reverse this list: {', '.join(words)}", ", ".join(words[::-1])
    if kind == 2:
        numbers = rng.sample(range(10, 100), rng.randint(3, 5))
        return f"Sort these numbers: {', '.join(map(str, numbers))}", ", ".join(
            map(str, sorted(numbers))
        )
    if kind == 3:
        words = rng.sample(WORDS, rng.randint(2, 8))
        return f"Count the words: {' '.join(words)}", f"There are {len(words)} words."
    if kind == 4:
        words = rng.sample(WORDS, rng.randint(3, 6))
        return f"What is the last word? {' '.join(words)}", words[-1]
    if kind == 5:
        words = rng.sample(WORDS, rng.randint(3, 6))
        return f"What is the first word? {' '.join(words)}", words[0]
    a, b = rng.sample(range(10, 100), 2)
    return f"Which is larger, {a} or {b}?", f"{max(a, b)} is larger than {min(a, b)}."


def make_skills(rng, held):
    messages = maybe_system(rng, 0.2)
    for _ in range(1 if held else rng.choice([1, 2, 3, 4])):
        while True:
            q, a = skill_item(rng)
            if held_out(q) == held:
                break
        messages += [user(q), assistant(a)]
    return Chat("skills", messages)


KINDS = {
    "facts": make_facts,
    "arithmetic": make_arithmetic,
    "arithmetic_thinking": make_arithmetic_thinking,
    "recall": make_recall,
    "json": make_json,
    "tools": make_tools,
    "small_talk": make_small_talk,
    "story": make_story,
    "conversation": make_conversation,
    "skills": make_skills,
    "drill": make_drill,
}
# share of each kind in the training text; recall and drill share the rest
MIXTURE = {
    "facts": 0.025,
    "arithmetic": 0.11,
    "arithmetic_thinking": 0.05,
    "json": 0.05,
    "tools": 0.11,
    "small_talk": 0.01,
    "story": 0.015,
    "conversation": 0.015,
    "skills": 0.055,
}
KIND_NAMES = list(KINDS)


def make(kind, rng, held=False):
    return KINDS[kind](rng, held)


class Sampler:
    """Makes training chats so that the text of each kind keeps its share of the mixture."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.written = {kind: 0.0 for kind in KINDS}

    def chat(self, level=1.0):
        """-> rendered pieces (see chat.render), index of the kind.  level: difficulty of the recall texts."""
        rest = 1 - sum(MIXTURE.values())
        share = dict(
            MIXTURE, drill=0.02 + 0.33 * (1 - level), recall=rest - 0.02 - 0.33 * (1 - level)
        )
        total = sum(self.written.values())
        if total > 200000:  # forget slowly: the shares change with the level
            self.written = {kind: n / 2 for kind, n in self.written.items()}
            total /= 2
        kind = max(KINDS, key=lambda k: share[k] * (total + 1) - self.written[k])
        if kind in ("recall", "drill"):
            chat = KINDS[kind](self.rng, False, level=level)
        else:
            chat = make(kind, self.rng)
        pieces = render(chat.messages, chat.thinking)
        self.written[kind] += sum(len(text) for text, _ in pieces)
        return pieces, KIND_NAMES.index(kind)


def gates(seed, scale=1):
    """Evaluation chats: about 170 * scale of them, spread over the gate kinds."""
    rng = random.Random(seed)
    plan = [
        ("facts", 25, lambda: make_facts(rng, True)),
        ("trivial", 8, lambda: make_small_talk(rng, True)),
        ("arithmetic", 20, lambda: make_arithmetic(rng, True)),
        ("arithmetic_thinking", 10, lambda: make_arithmetic_thinking(rng, True)),
        ("json", 15, lambda: make_json(rng, True)),
        ("tool_call", 15, lambda: make_tools(rng, True, "call")),
        ("tool_answer", 8, lambda: make_tools(rng, True, "answer")),
        ("story", 5, lambda: make_story(rng, True)),
        ("conversation", 5, lambda: make_conversation(rng, True)),
        ("skills", 14, lambda: make_skills(rng, True)),
        ("recall_400", 8, lambda: make_recall(rng, True, rng.randint(60, 330), "one")),
        ("recall_1000", 12, lambda: make_recall(rng, True, rng.randint(380, 850), "one")),
        ("recall_1900", 12, lambda: make_recall(rng, True, rng.randint(950, 1700), "one")),
        ("recall_several", 4, lambda: make_recall(rng, True, rng.randint(60, 600), "several")),
        ("recall_all", 4, lambda: make_recall(rng, True, rng.randint(60, 600), "all")),
        ("recall_long", 8, lambda: make_recall(rng, True, rng.randint(2050, 2380), "one")),
    ]
    result = []
    for kind, count, maker in plan:
        seen = set()
        tries = 0
        while len(seen) < count * scale and tries < count * scale * 5:
            tries += 1
            chat = maker()
            key = json.dumps(chat.messages[:-1], ensure_ascii=False)
            if key in seen:
                continue
            seen.add(key)
            chat.kind = kind
            result.append(chat)
    return result


if __name__ == "__main__":
    import sys

    rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    for name in KIND_NAMES:
        chat = make(name, rng)
        print(f"--- {name}")
        print("".join(text for text, _ in render(chat.messages, chat.thinking)))
