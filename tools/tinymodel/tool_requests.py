# SPDX-License-Identifier: Apache-2.0
"""The tools of the corpus: what a user asks of each, its result, and its schema in name variants."""

from holdout import pair_held_out
from words import ADJECTIVES, CITIES, NAMES, NOUNS, WORDS


def _string(description):
    return {"type": "string", "description": description}


def _number(description):
    return {"type": "integer", "description": description}


CONDITIONS = "sunny cloudy rainy windy snowy foggy clear".split()
LANGUAGES = "French German Spanish Italian Polish Dutch".split()
PHRASES = [
    "see you soon",
    "the train is late",
    "happy birthday",
    "dinner is ready",
    "call me back",
    "thank you",
    "good luck",
    "the door is open",
    "I am at home",
    "bring the map",
]
ROOMS = "kitchen bedroom bathroom garage hall office garden".split()
MONEY = "dollars euros pounds yen francs".split()


def tool_weather(rng):
    city, t, c = rng.choice(CITIES), rng.randint(1, 39), rng.choice(CONDITIONS)
    ask = rng.choice(
        [
            "What is the weather in {}?",
            "How is the weather in {} today?",
            "Tell me the weather in {}.",
            "Weather for {}?",
        ]
    ).format(city)
    return (
        ask,
        [city],
        {"temperature": t, "condition": c},
        f"It is {t} degrees and {c} in {city}.",
        f"the weather in {city}",
    )


def tool_add(rng):
    while True:
        a, b = rng.randint(0, 99), rng.randint(0, 99)
        if not pair_held_out(a, "+", b):
            break
    ask = rng.choice(
        [
            "Use a tool to add {} and {}.",
            "Add {} and {} with the tool.",
            "With the tool, what is {} plus {}?",
        ]
    ).format(a, b)
    return ask, [a, b], {"result": a + b}, f"The result is {a + b}.", f"the sum of {a} and {b}"


def tool_multiply(rng):
    a, b = rng.randint(0, 99), rng.randint(0, 99)
    ask = rng.choice(
        [
            "Use a tool to multiply {} by {}.",
            "Multiply {} by {} with the tool.",
            "With the tool, what is {} times {}?",
        ]
    ).format(a, b)
    return ask, [a, b], {"result": a * b}, f"The result is {a * b}.", f"{a} times {b}"


def tool_search(rng):
    topic = f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}s"
    n = rng.randint(2, 99)
    ask = rng.choice(["Search the web for {}.", "Find pages about {}.", "Look up {}."]).format(
        topic
    )
    return ask, [topic], {"count": n}, f"I found {n} pages about {topic}.", f"pages about {topic}"


def tool_alarm(rng):
    time = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
    ask = rng.choice(["Set an alarm for {}.", "Wake me at {}.", "I need an alarm at {}."]).format(
        time
    )
    return ask, [time], {"status": "ok"}, f"The alarm is set for {time}.", f"an alarm at {time}"


def tool_message(rng):
    name, text = rng.choice(NAMES), rng.choice(PHRASES)
    ask = rng.choice(["Send a message to {0}: {1}", "Write to {0}: {1}", "Tell {0}: {1}"]).format(
        name, text
    )
    return (
        ask,
        [name, text],
        {"status": "sent"},
        f"The message to {name} was sent.",
        f"to send a message to {name}",
    )


def tool_translate(rng):
    word, language = rng.choice(WORDS), rng.choice(LANGUAGES)
    ask = rng.choice(
        [
            "Translate {0} into {1}.",
            "How do you say {0} in {1}? Use the tool.",
            "I need the word {0} in {1}.",
        ]
    ).format(word, language)
    result = rng.choice(WORDS)
    return (
        ask,
        [word, language],
        {"translation": result},
        f"In {language}, {word} is {result}.",
        f"a translation into {language}",
    )


def tool_time(rng):
    city, time = rng.choice(CITIES), f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
    ask = rng.choice(
        ["What time is it in {}?", "Tell me the time in {}.", "Current time in {}?"]
    ).format(city)
    return ask, [city], {"time": time}, f"It is {time} in {city}.", f"the time in {city}"


def tool_convert(rng):
    a, b = rng.sample(MONEY, 2)
    n, m = rng.randint(1, 99), rng.randint(1, 99)
    ask = rng.choice(
        ["Convert {0} {1} to {2}.", "How many {2} are {0} {1}?", "Change {0} {1} into {2}."]
    ).format(n, a, b)
    return ask, [n, a, b], {"amount": m}, f"{n} {a} are {m} {b}.", f"to convert {a} to {b}"


def tool_task(rng):
    task = (
        f"{rng.choice(['clean', 'paint', 'repair', 'buy', 'move', 'sell'])} the {rng.choice(NOUNS)}"
    )
    ask = rng.choice(["Add a task: {}", "Put this on my list: {}", "Remind me to {}"]).format(task)
    return ask, [task], {"status": "ok"}, f"I added the task: {task}", "to add a task"


def tool_light(rng):
    room, on = rng.choice(ROOMS), rng.random() < 0.5
    ask = rng.choice(
        [
            "Turn {1} the light in the {0}.",
            "Switch the {0} light {1}.",
            "Light {1} in the {0}, please.",
        ]
    ).format(room, "on" if on else "off")
    return (
        ask,
        [room, on],
        {"status": "ok"},
        f"The light in the {room} is now {'on' if on else 'off'}.",
        f"to change the {room} light",
    )


def tool_timer(rng):
    n = rng.randint(1, 90)
    ask = rng.choice(
        ["Start a timer of {} minutes.", "Set a timer for {} minutes.", "Timer, {} minutes."]
    ).format(n)
    return (
        ask,
        [n],
        {"status": "started"},
        f"The timer runs for {n} minutes.",
        f"a timer of {n} minutes",
    )


# (maker, names, description, [(parameter names, schema)])
TOOLS = [
    (
        tool_weather,
        ["get_weather", "weather_lookup"],
        "Get the weather for a city",
        [(["city", "location"], _string("The city name"))],
    ),
    (
        tool_add,
        ["add_numbers", "sum"],
        "Add two numbers",
        [(["a", "x"], _number("First number")), (["b", "y"], _number("Second number"))],
    ),
    (
        tool_multiply,
        ["multiply", "product"],
        "Multiply two numbers",
        [(["a", "x"], _number("First number")), (["b", "y"], _number("Second number"))],
    ),
    (
        tool_search,
        ["search", "web_search"],
        "Search the web",
        [(["query", "text"], _string("Search query"))],
    ),
    (
        tool_alarm,
        ["set_alarm", "create_alarm"],
        "Set an alarm",
        [(["time"], _string("Time as HH:MM"))],
    ),
    (
        tool_message,
        ["send_message", "send_text"],
        "Send a message to a person",
        [(["to", "name"], _string("The receiver")), (["text", "message"], _string("The text"))],
    ),
    (
        tool_translate,
        ["translate", "translate_word"],
        "Translate a word",
        [(["word", "text"], _string("The word")), (["language"], _string("Target language"))],
    ),
    (
        tool_time,
        ["get_time", "current_time"],
        "Get the current time in a city",
        [(["city", "location"], _string("The city name"))],
    ),
    (
        tool_convert,
        ["convert_money", "exchange"],
        "Convert an amount of money",
        [
            (["amount"], _number("The amount")),
            (["from"], _string("Source currency")),
            (["to"], _string("Target currency")),
        ],
    ),
    (
        tool_task,
        ["add_task", "create_task"],
        "Add a task to the list",
        [(["task", "title"], _string("The task"))],
    ),
    (
        tool_light,
        ["set_light", "light_switch"],
        "Switch a light on or off",
        [(["room"], _string("The room")), (["on"], {"type": "boolean", "description": "Light on"})],
    ),
    (
        tool_timer,
        ["start_timer", "set_timer"],
        "Start a timer",
        [(["minutes"], _number("Minutes"))],
    ),
]


def instantiate(rng, tool):
    """-> (maker, name, parameter names, OpenAI style schema) with one of the name variants."""
    maker, names, description, parameters = tool
    name = rng.choice(names)
    variant = rng.random()
    chosen = [options[int(variant * len(options))] for options, _ in parameters]
    schema = {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": dict(zip(chosen, (p for _, p in parameters))),
                "required": chosen,
            },
        },
    }
    return maker, name, chosen, schema
