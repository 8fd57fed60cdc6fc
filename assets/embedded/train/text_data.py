"""Rows of words: small talk and self-knowledge, definitions, facts, sums, JSON, rewriting."""

import json

from common import SOURCES


def row(kind, *said, **more):
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(said)]
    return {"kind": kind, "messages": messages, **more}


# These are typed first by nearly everybody: they are learned in any case, never held out.
FIRST = {
    "hi",
    "hello",
    "hey",
    "help",
    "who are you",
    "what can you do",
    "thanks",
    "bye",
    "good morning",
    "how are you",
    "what is llmsrv",
    "how do i get a larger model",
    "what are you",
    "yo",
    "test",
}


def talk():
    """sources/talk.txt: I intent = words of a right answer, Q questions, A answer, F follow-up."""
    intent, needed, questions, answer = None, None, [], None
    for line in [*(SOURCES / "talk.txt").read_text(encoding="utf-8").splitlines(), "Q: "]:
        mark, rest = line[:3], line[3:]
        if mark in ("I: ", "Q: ") and answer is not None:
            for question in questions:
                plain = question.lower().strip(" ?!.")
                yield row(
                    "self",
                    question,
                    answer,
                    check={"words": needed},
                    intent=intent,
                    vary=True,
                    often=plain in FIRST,
                )
            yield {"kind": "raw", "raw": answer}
            answer = None
        if line.startswith("#"):
            continue
        if mark == "I: ":
            intent, words = rest.split(" = ", 1)
            needed = [[x.strip() for x in group.split(",")] for group in words.split(" ; ")]
        elif mark == "Q: ":
            questions = list(dict.fromkeys(x.strip() for x in rest.split(" | ")))
        elif mark == "A: ":
            answer = rest
        elif mark == "F: ":
            ask, reply = rest.split(" = ", 1)
            for first in questions[:6]:
                yield row("follow", first, answer, ask, reply, vary=True)
        elif line and answer is not None:
            answer += "\n" + line


def definitions():
    """sources/words.txt: Q questions, A answer."""
    questions = []
    for line in (SOURCES / "words.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("Q: "):
            questions = [x.strip() for x in line[3:].split(" | ")]
        elif line.startswith("A: "):
            for question in questions:
                text = line[3:].replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\")
                yield row("define", question, text, vary=True)
    asks = (
        "What is {x}?",
        "what's {x}",
        "Explain {x}.",
        "Define {x}.",
        "What does {x} mean?",
        "{x}?",
        "Tell me about {x}.",
    )
    for line in (SOURCES / "terms.txt").read_text(encoding="utf-8").splitlines():
        term, meaning = line.split("|", 1)
        for ask in asks:
            question = ask.format(x=term)
            yield row("define", question[0].upper() + question[1:], meaning, vary=True)


CAPITALS = """France Paris, Germany Berlin, Italy Rome, Spain Madrid, Portugal Lisbon, Poland Warsaw, Austria Vienna,
Switzerland Bern, Belgium Brussels, Denmark Copenhagen, Sweden Stockholm, Norway Oslo, Finland Helsinki, Greece Athens,
Ireland Dublin, Hungary Budapest, Romania Bucharest, Bulgaria Sofia, Croatia Zagreb, Serbia Belgrade, Ukraine Kyiv,
Russia Moscow, Turkey Ankara, Egypt Cairo, Kenya Nairobi, Nigeria Abuja, Japan Tokyo, China Beijing, Thailand Bangkok,
Vietnam Hanoi, Indonesia Jakarta, Australia Canberra, Canada Ottawa, Cuba Havana, Chile Santiago, Peru Lima,
Argentina Buenos_Aires, India New_Delhi, Mexico Mexico_City, Brazil Brasilia, Iceland Reykjavik, Colombia Bogota"""


def facts():
    for pair in CAPITALS.replace("\n", " ").split(", "):
        country, city = pair.strip().split(" ")
        city = city.replace("_", " ")
        for ask in (
            "What is the capital of {x}?",
            "capital of {x}",
            "what's the capital of {x}?",
            "Which city is the capital of {x}?",
            "{x} capital?",
        ):
            yield row(
                "fact",
                ask.format(x=country),
                f"The capital of {country} is {city}.",
                check={"words": [[city]]},
                vary=True,
            )


def sums(dice):
    for _ in range(260):
        a, b = dice.randint(1, 10), dice.randint(1, 10)
        sign, result = dice.choice([("+", a + b), ("-", a + b - b), ("*", a * b)])
        if sign == "-":
            a, result = a + b, a
        ask = dice.choice(
            [
                "{a} {s} {b}",
                "what is {a} {s} {b}?",
                "{a}{s}{b}",
                "Calculate {a} {s} {b}.",
                "what's {a} {s} {b}",
            ]
        )
        yield row("sum", ask.format(a=a, b=b, s=sign), f"{a} {sign} {b} = {result}.")


NAMES = [
    "Ada",
    "Ben",
    "Carla",
    "David",
    "Eva",
    "Frank",
    "Greta",
    "Henry",
    "Ida",
    "Jack",
    "Karl",
    "Lena",
    "Maria",
    "Noah",
    "Olga",
    "Paul",
    "Rosa",
    "Sam",
    "Tom",
    "Uma",
    "Vera",
    "Will",
    "Yara",
    "Zoe",
    "Anna",
    "Bob",
    "Alice",
    "Chris",
    "Dana",
    "Emil",
    "Fiona",
    "George",
    "Hanna",
    "Ivan",
    "Julia",
    "Kim",
    "Leo",
    "Mona",
    "Nina",
    "Oscar",
    "Peter",
    "Ruth",
    "Simon",
    "Tina",
    "John",
    "Jane",
    "Mark",
    "Lucy",
    "Max",
    "Ella",
    "Liam",
    "Emma",
    "Oliver",
    "Sofia",
    "Lucas",
    "Mia",
]
CITIES = [
    "Berlin",
    "Paris",
    "Rome",
    "Madrid",
    "Lisbon",
    "Vienna",
    "Oslo",
    "Lima",
    "Tokyo",
    "Cairo",
    "Boston",
    "Dublin",
    "London",
    "Prague",
    "Zurich",
    "Munich",
    "Warsaw",
    "Athens",
    "Sydney",
    "Toronto",
    "Chicago",
    "Delhi",
    "Osaka",
    "Geneva",
    "Bergen",
    "Porto",
    "Lyon",
    "Milan",
    "Ghent",
    "Turin",
]
JOBS = [
    "teacher",
    "doctor",
    "nurse",
    "engineer",
    "cook",
    "farmer",
    "pilot",
    "lawyer",
    "painter",
    "writer",
    "baker",
    "student",
    "driver",
    "developer",
]
FRUITS = [
    "apples",
    "pears",
    "books",
    "pens",
    "chairs",
    "lamps",
    "cups",
    "bottles",
    "tickets",
    "shirts",
    "keys",
    "phones",
    "plates",
    "bikes",
]
COLOURS = ["red", "green", "blue", "yellow", "black", "white", "orange", "grey", "brown", "pink"]


def person(dice):
    """(sentence, all that it says) about somebody or something."""
    name, city, job = dice.choice(NAMES), dice.choice(CITIES), dice.choice(JOBS)
    age, count, price = dice.randint(5, 95), dice.randint(2, 99), dice.randint(1, 99)
    thing, colour = dice.choice(FRUITS), dice.choice(COLOURS)
    email = f"{name.lower()}@example.{dice.choice(['com', 'org', 'net'])}"
    return dice.choice(
        [
            (f"{name} is {age} years old and lives in {city}.", {"name": name, "age": age, "city": city}),
            (f"{name}, {age}, is a {job} from {city}.", {"name": name, "age": age, "job": job, "city": city}),
            (f"My name is {name} and I live in {city}.", {"name": name, "city": city}),
            (f"{name} works as a {job} in {city}.", {"name": name, "job": job, "city": city}),
            (f"{name} is {age} years old.", {"name": name, "age": age}),
            (f"I am {name}, {age} years old, a {job}.", {"name": name, "age": age, "job": job}),
            (f"{count} {thing} cost {price} dollars.", {"item": thing, "count": count, "price": price}),
            (
                f"{name} bought {count} {colour} {thing}.",
                {"name": name, "count": count, "color": colour, "item": thing},
            ),
            (f"{name} can be reached at {email}.", {"name": name, "email": email}),
            (f"name={name}, age={age}, city={city}", {"name": name, "age": age, "city": city}),
            (
                f"The {thing} are {colour} and cost {price} euros.",
                {"item": thing, "color": colour, "price": price},
            ),
        ]
    )


def objects(dice):
    """JSON by schema or by keys, its values taken from the prompt."""
    for _ in range(2600):
        sentence, known = person(dice)
        keys = [k for k in known if dice.random() < 0.85] or list(known)[:1]
        wanted = {k: known[k] for k in keys}
        schema = {
            "type": "object",
            "properties": {
                k: {"type": "integer" if isinstance(v, int) else "string"} for k, v in wanted.items()
            },
            "required": keys,
        }
        listed = ", ".join(keys)
        ask = dice.choice(
            [
                "Answer with JSON only, keys {keys}: {text}",
                "Extract {keys} as JSON: {text}",
                "Return a JSON object with the keys {keys}. {text}",
                "{text}\n\nAnswer in JSON with the keys {keys}.",
                "Convert to JSON with keys {keys}: {text}",
                "{text} Give me {keys} as JSON.",
                "Answer in JSON by this schema: {schema}\n\n{text}",
                "{text}\n\nReply with JSON that fits this schema: {schema}",
            ]
        )
        question = ask.format(keys=listed, text=sentence, schema=json.dumps(schema))
        yield row("json", question, json.dumps(wanted), check={"object": wanted})


def sentence(dice):
    name = dice.choice(NAMES)
    return dice.choice(
        [
            f"{name} lives in {dice.choice(CITIES)}",
            f"{name} works as a {dice.choice(JOBS)}",
            f"the {dice.choice(FRUITS)} are {dice.choice(COLOURS)}",
            f"{name} bought {dice.choice(FRUITS)} in {dice.choice(CITIES)}",
            f"{name} and {dice.choice(NAMES)} went to {dice.choice(CITIES)}",
            f"we need more {dice.choice(FRUITS)}",
            f"{name} is a good {dice.choice(JOBS)}",
            f"they sold {dice.randint(2, 60)} {dice.choice(FRUITS)}",
        ]
    )


def rewriting(dice):
    """Small changes of a text that need no knowledge: the right answer is exact."""
    for _ in range(900):
        text = sentence(dice)
        words = text.split()
        first = text[0].upper() + text[1:] + "."
        task, answer = dice.choice(
            [
                ("Write this in upper case: {text}", text.upper()),
                ("Convert to lower case: {upper}", text.lower()),
                ("Make this a proper sentence: {lower}", text[0].upper() + text[1:] + "."),
                ("Put this in quotes: {text}", f'"{text}"'),
                ("Make a bullet list of these words: {text}", "\n".join(f"- {w}" for w in words)),
                ("Separate these words with commas: {text}", ", ".join(words)),
                ("Repeat after me: {text}", text),
                ("Repeat this sentence: {first}", first),
                ("How many words has this text: {text}", f"It has {len(words)} words."),
            ]
        )
        question = task.format(text=text, upper=text.upper(), lower=text.lower(), first=first)
        yield row("rewrite", question, answer, check={"exact": answer})


def reviews(dice):
    """Small changes to read, as `git diff` prints them."""
    asks = (
        "Review this:",
        "Review:",
        "What does this diff change?",
        "Explain this diff:",
        "Write a commit message:",
    )
    lines = [
        "timeout = {n}",
        "retries = {n}",
        "port = {n}",
        "limit = {n}",
        "debug = {b}",
        "verbose = {b}",
        'name = "{w}"',
        'host = "{w}"',
        "size = {n} * {m}",
    ]
    for number in range(420):
        ask = asks[number % len(asks)]
        file = dice.choice(
            [
                "config.py",
                "main.py",
                "app.py",
                "server.py",
                "settings.py",
                "src/main.rs",
                "src/lib.rs",
                "index.js",
                "README.md",
            ]
        )
        form = dice.choice(lines)
        fill = lambda: form.format(
            n=dice.randint(1, 99),
            m=dice.randint(2, 9),
            b=dice.choice(["True", "False"]),
            w=dice.choice(NAMES).lower(),
        )
        old, new = fill(), fill()
        if old == new:
            continue
        first = dice.randint(1, 80)
        diff = f"diff --git a/{file} b/{file}\n--- a/{file}\n+++ b/{file}\n@@ -{first} +{first} @@\n-{old}\n+{new}"
        answer = (
            f"Change {old.split(' =')[0]} in {file}"
            if ask.startswith("Write")
            else f"In `{file}` the line `{old}` becomes `{new}`."
        )
        yield row("review", f"{ask}\n\n{diff}", answer, check={"exact": answer})


def rows(dice):
    yield from reviews(dice)
    yield from talk()
    yield from definitions()
    yield from facts()
    yield from sums(dice)
    yield from objects(dice)
    yield from rewriting(dice)
