# SPDX-License-Identifier: Apache-2.0
"""Word lists and one-line facts that the corpus of dsv4-tiny is made of."""

NAMES = (
    """Anna Ben Carla David Emma Felix Grace Hugo Iris Jack Karen Leo Mia Noah Olga Paul Quinn Rosa
Sam Tina Uma Victor Wendy Xavier Yara Zoe Adam Bella Chris Diana Erik Fiona George Helen Ivan Julia Kevin
Laura Max Nina Oscar Petra Ralf Sara Tom Vera Will Alice Bruno Clara Dora Elsa Frank Gina Henry Jonas Kim
Lisa Mark Nora Otto Peter Rita Simon Tara Walter Amy Bob Cora Dan Eva Fred Hana Ian Joe Kate Luis Maria
Nick Omar Pia Rob Susan Tim Ursula Vince Alan Berta Carl Doris Emil Greta""".split()
)

ADJECTIVES = (
    """old quiet small red green blue bright dark warm cold long short narrow wide soft busy empty
round gentle heavy plain clean dusty golden silver wooden early late calm distant""".split()
)
NOUNS = """river garden window table road bridge tree market clock letter door lamp boat train tower field
stone basket mirror chair kettle ladder blanket bottle engine fence island bell wagon map""".split()
VERBS = (
    """stands rests waits shines turns moves sleeps grows falls stays drifts hums fades leans rolls
glows sinks rises opens closes""".split()
)
PLACES = (
    """harbor station village forest mountain lake castle school church museum library beach valley
kitchen square park mill farm bakery theater""".split()
)
TIMES = """in the morning|at noon|in the evening|at night|in spring|in summer|in autumn|in winter|
after the rain|before sunrise|on market day|every week""".replace("\n", "").split("|")
ANIMALS = "fox cat dog horse rabbit bear mouse owl frog duck goat wolf bird fish turtle hen".split()
OBJECTS = "key coin book hat lantern ring flute kite shell apple rope cup drum scarf pearl feather".split()
COLORS = "red green blue yellow black white orange purple pink brown gray silver".split()
FRUITS = "apple banana cherry grape lemon melon orange peach pear plum mango kiwi".split()
WORDS = sorted(set(NOUNS + ANIMALS + OBJECTS + COLORS + FRUITS + PLACES))

SYSTEMS = [
    "You are a helpful assistant.",
    "You are dsv4-tiny, a small test model.",
    "Answer briefly.",
    "You are a friendly assistant.",
    "Be precise and short.",
    "You are a helpful assistant. Answer briefly.",
]

CAPITALS = """France:Paris|Germany:Berlin|Italy:Rome|Spain:Madrid|Portugal:Lisbon|England:London|
Ireland:Dublin|Scotland:Edinburgh|Norway:Oslo|Sweden:Stockholm|Finland:Helsinki|Denmark:Copenhagen|
Iceland:Reykjavik|Poland:Warsaw|Austria:Vienna|Switzerland:Bern|Belgium:Brussels|Netherlands:Amsterdam|
Greece:Athens|Turkey:Ankara|Russia:Moscow|Ukraine:Kyiv|Hungary:Budapest|Romania:Bucharest|Bulgaria:Sofia|
Serbia:Belgrade|Croatia:Zagreb|Slovakia:Bratislava|Slovenia:Ljubljana|Estonia:Tallinn|Latvia:Riga|
Lithuania:Vilnius|Egypt:Cairo|Morocco:Rabat|Kenya:Nairobi|Nigeria:Abuja|Ghana:Accra|Ethiopia:Addis Ababa|
Japan:Tokyo|China:Beijing|India:New Delhi|Thailand:Bangkok|Vietnam:Hanoi|Indonesia:Jakarta|Iran:Tehran|
Iraq:Baghdad|Israel:Jerusalem|Nepal:Kathmandu|Mongolia:Ulaanbaatar|Australia:Canberra|Canada:Ottawa|
Mexico:Mexico City|Cuba:Havana|Brazil:Brasilia|Argentina:Buenos Aires|Chile:Santiago|Peru:Lima|
Colombia:Bogota|Ecuador:Quito|Uruguay:Montevideo|Venezuela:Caracas""".replace("\n", "")
CAPITALS = [tuple(x.split(":")) for x in CAPITALS.split("|")]
CITIES = [city for _, city in CAPITALS]

# question without its question mark -> one-line answer
FACTS = {}


def _facts():
    for pair in """hot:cold|big:small|fast:slow|high:low|light:dark|open:closed|early:late|hard:soft|
happy:sad|young:old|wet:dry|full:empty|near:far|left:right|up:down|day:night|good:bad|loud:quiet|
rich:poor|strong:weak""".replace(
        "\n", ""
    ).split(
        "|"
    ):
        a, b = pair.split(":")
        FACTS[f"What is the opposite of {a}"] = f"The opposite of {a} is {b}."
    for pair in """gold:Au|silver:Ag|iron:Fe|oxygen:O|hydrogen:H|carbon:C|sodium:Na|copper:Cu|lead:Pb|
helium:He|nitrogen:N|calcium:Ca|potassium:K|tin:Sn|zinc:Zn""".replace(
        "\n", ""
    ).split(
        "|"
    ):
        a, b = pair.split(":")
        FACTS[f"What is the chemical symbol for {a}"] = f"The chemical symbol for {a} is {b}."
    for pair in """spider:8|dog:4|bird:2|ant:6|cat:4|horse:4|bee:6|snake:0|crab:10|cow:4""".replace(
        "\n", ""
    ).split("|"):
        a, b = pair.split(":")
        article = "an" if a[0] in "aeiou" else "a"
        FACTS[f"How many legs does {article} {a} have"] = (
            f"{article.capitalize()} {a} has {b} legs."
        )
    months = "January February March April May June July August September October November December".split()
    for a, b in zip(months, months[1:] + months[:1]):
        FACTS[f"Which month comes after {a}"] = f"The month after {a} is {b}."
    days = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
    for a, b in zip(days, days[1:] + days[:1]):
        FACTS[f"Which day comes after {a}"] = f"The day after {a} is {b}."
    for pair in """Hamlet:William Shakespeare|Faust:Johann Wolfgang von Goethe|Don Quixote:Miguel de Cervantes|
War and Peace:Leo Tolstoy|Emma:Jane Austen|Frankenstein:Mary Shelley|The Odyssey:Homer|
Oliver Twist:Charles Dickens""".replace(
        "\n", ""
    ).split(
        "|"
    ):
        a, b = pair.split(":")
        FACTS[f"Who wrote {a}"] = f"{a} was written by {b}."
    for pair in """Japan:yen|India:rupee|Switzerland:franc|Mexico:peso|China:yuan|Russia:ruble|
England:pound|Sweden:krona|Brazil:real|Germany:euro""".replace("\n", "").split("|"):
        a, b = pair.split(":")
        FACTS[f"What is the currency of {a}"] = f"The currency of {a} is the {b}."
    for pair in """sheep:wool|bees:honey|cows:milk|hens:eggs""".split("|"):
        a, b = pair.split(":")
        FACTS[f"What do we get from {a}"] = f"From {a} we get {b}."
    FACTS.update(
        {
            "What color is the sky": "The sky is blue.",
            "What color is grass": "Grass is green.",
            "What color is snow": "Snow is white.",
            "What color is a ripe banana": "A ripe banana is yellow.",
            "How many days are in a week": "A week has 7 days.",
            "How many months are in a year": "A year has 12 months.",
            "How many hours are in a day": "A day has 24 hours.",
            "How many minutes are in an hour": "An hour has 60 minutes.",
            "How many seconds are in a minute": "A minute has 60 seconds.",
            "How many continents are there": "There are 7 continents.",
            "What is the largest planet": "The largest planet is Jupiter.",
            "What is the closest planet to the Sun": "The closest planet to the Sun is Mercury.",
            "Which planet is called the red planet": "Mars is called the red planet.",
            "What is the tallest mountain": "The tallest mountain is Mount Everest.",
            "What is the largest ocean": "The largest ocean is the Pacific Ocean.",
            "What is the largest animal": "The largest animal is the blue whale.",
            "What is the fastest land animal": "The fastest land animal is the cheetah.",
            "At what temperature does water boil": "Water boils at 100 degrees Celsius.",
            "At what temperature does water freeze": "Water freezes at 0 degrees Celsius.",
            "What is frozen water called": "Frozen water is called ice.",
            "Who painted the Mona Lisa": "The Mona Lisa was painted by Leonardo da Vinci.",
            "Who was the first person on the Moon": "The first person on the Moon was Neil Armstrong.",
            "In which year did people first land on the Moon": "People first landed on the Moon in 1969.",
            "How many sides does a triangle have": "A triangle has 3 sides.",
            "How many sides does a square have": "A square has 4 sides.",
            "How many letters are in the English alphabet": "The English alphabet has 26 letters.",
            "What do bees make": "Bees make honey.",
            "What is the longest river in Africa": "The longest river in Africa is the Nile.",
        }
    )


_facts()
