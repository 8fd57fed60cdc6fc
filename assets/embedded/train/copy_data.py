"""Rows whose answers take names, numbers and words out of the question.

A model copies only if it cannot know the answer by heart: names are invented by dice here, and
nearly every row has others. None of these rows is asked by the evaluation.
"""

import json
import keyword
from string import Template

import fault_data
import text_data
from code_data import ASK, entries, fenced, row
from common import SOURCES
from fault_data import answer

# Syllables: invented names look like those of people, places, files and variables.
HEADS = "b c d f g h j k l m n p r s t v w z br ch cr dr fl fr gr kl kr pl pr sh sl st th tr".split()
CORES = "a e i o u a e i o ai ea ee ia oo ou".split()
TAILS = ["", "", "", "n", "r", "s", "l", "m", "t", "k", "nd", "rt", "st", "x"]
ENDS = ["", "", "a", "o", "in", "er", "ley", "son", "us", "ton", "ia", "berg", "ville", "ine", "ik"]
LISTS = {
    key: words.split()
    for key, words in (
        line.split(": ", 1)
        for line in (SOURCES / "lists.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
}
NOUNS, VERBS = LISTS["nouns"], LISTS["verbs"]
NAMES = text_data.NAMES + LISTS["names"]
CITIES = text_data.CITIES + LISTS["cities"]
JOBS = text_data.JOBS + LISTS["jobs"]
THINGS = text_data.FRUITS + LISTS["things"]
COLOURS = text_data.COLOURS + LISTS["colours"]
COUNTRIES = [pair.strip().split(" ")[0] for pair in text_data.CAPITALS.replace("\n", " ").split(", ")]

def invent(dice):
    """A word that nobody has seen before."""
    count = dice.choice([1, 1, 2, 2, 2, 3])
    word = "".join(dice.choice(HEADS) + dice.choice(CORES) for _ in range(count)) + dice.choice(TAILS)
    word += dice.choice(ENDS) if count < 3 else ""
    return word + "a" if keyword.iskeyword(word) else word


def name(dice):
    return dice.choice(NAMES) if dice.random() < 0.5 else invent(dice).capitalize()


def city(dice):
    return dice.choice(CITIES) if dice.random() < 0.5 else invent(dice).capitalize()


def noun(dice):
    return dice.choice(NOUNS) if dice.random() < 0.75 else invent(dice)


def variable(dice):
    roll = dice.random()
    if roll < 0.45:
        return noun(dice)
    if roll < 0.9:
        return f"{noun(dice)}_{dice.choice(NOUNS)}"
    return f"{noun(dice)}{dice.randint(1, 99)}"


def function(dice):
    roll = dice.random()
    if roll < 0.6:
        return f"{dice.choice(VERBS)}_{noun(dice)}"
    if roll < 0.85:
        return f"{dice.choice(VERBS)}_{noun(dice)}_{dice.choice(NOUNS)}"
    return invent(dice)


def number(dice):
    return dice.randint(1, 10 ** dice.choice([1, 2, 2, 2, 3, 3, 4, 5]))


def file(dice, ending=None):
    ending = ending or dice.choice("py txt csv json yaml toml log md db html xml bin rs js".split())
    return f"{variable(dice)}.{ending}"


# Key -> how its value is thrown.
FIELDS = {
    "name": name,
    "age": lambda d: d.randint(1, 99),
    "city": city,
    "country": lambda d: d.choice(COUNTRIES),
    "job": lambda d: d.choice(JOBS),
    "email": lambda d: (
        f"{name(d).lower()}@{d.choice(['example', 'mail', invent(d)])}.{d.choice(['com', 'org', 'net', 'de'])}"
    ),
    "item": lambda d: d.choice(THINGS),
    "count": lambda d: d.randint(2, 99),
    "price": lambda d: d.choice([d.randint(1, 99), d.randint(1, 999), round(d.uniform(1, 99), 2)]),
    "color": lambda d: d.choice(COLOURS),
    "animal": lambda d: d.choice(LISTS["animals"]),
    "language": lambda d: d.choice(LISTS["languages"]),
    "status": lambda d: d.choice(LISTS["states"]),
    "order": number,
    "year": lambda d: d.randint(1900, 2030),
    "score": lambda d: d.randint(0, 100),
    "host": lambda d: f"{noun(d)}.{d.choice(['example', 'local', invent(d)])}.{d.choice(['com', 'org', 'net'])}",
    "port": lambda d: d.randint(80, 65000),
    "file": file,
    "size": number,
    "title": lambda d: f"The {noun(d).capitalize()} of {city(d)}",
    "team": lambda d: f"{d.choice(COLOURS)} {noun(d)}s",
    "date": lambda d: f"{d.randint(1990, 2030)}-{d.randint(1, 12):02}-{d.randint(1, 28):02}",
    "company": lambda d: f"{invent(d).capitalize()} {d.choice(['Ltd', 'Inc', 'AG', 'Labs', 'Works'])}",
}
# Sentences with the keys that they tell. Those of text_data come from it, with its own words.
SENTENCES = [
    "{name} is {age} years old and lives in {city}.",
    "{name}, {age}, is a {job} from {city}.",
    "My name is {name} and I live in {city}.",
    "{name} works as a {job} in {city}.",
    "{name} is {age} years old.",
    "I am {name}, {age} years old, a {job}.",
    "{count} {item} cost {price} dollars.",
    "{name} bought {count} {color} {item}.",
    "{name} can be reached at {email}.",
    "The {item} are {color} and cost {price} euros.",
    "{name} from {city} is {age}.",
    "{name} has a {color} {animal}.",
    "{name} speaks {language} and comes from {country}.",
    "Order {order} of {name} is {status}.",
    "Order {order}: {count} {item} for {price} euros.",
    "{title} was written by {name} in {year}.",
    "{name} scored {score} points for the {team}.",
    "The server {host} listens on port {port}.",
    "The file {file} has {size} bytes.",
    "{name} was born in {city} in {year}.",
    "{name} works for {company} as a {job}.",
    "{company} sold {count} {item} in {year}.",
    "On {date} {name} went to {city}.",
    "{name} ({email}) ordered {count} {item}.",
    "The {animal} of {name} is {age} years old.",
    "{name} lives in {city}, {country}, and is a {job}.",
    "In {city} {name} paid {price} dollars for {count} {item}.",
    "The meeting with {name} is on {date}.",
]
ASKS = [
    "Answer with JSON only, keys {keys}: {text}",
    "Extract {keys} as JSON: {text}",
    "Return a JSON object with the keys {keys}. {text}",
    "{text}\n\nAnswer in JSON with the keys {keys}.",
    "Convert to JSON with keys {keys}: {text}",
    "{text} Give me {keys} as JSON.",
    "Answer in JSON by this schema: {schema}\n\n{text}",
    "{text}\n\nReply with JSON that fits this schema: {schema}",
]
MORE_ASKS = [
    "{text} As JSON with {keys}, please.",
    "JSON with {keys}: {text}",
    "Extract {keys} from this text as JSON:\n\n{text}",
    "Fill this JSON schema: {schema}\n\nText: {text}",
    "Turn this into JSON ({keys}): {text}",
    "Read the text and answer with a JSON object that has the keys {keys}.\n\n{text}",
]


def filled(dice):
    """(text, what it says) in one of many forms."""
    roll = dice.random()
    if roll < 0.62:
        form = dice.choice(SENTENCES)
        keys = [key for key in FIELDS if "{" + key + "}" in form]
        keys.sort(key=lambda key: form.index("{" + key + "}"))
        known = {key: FIELDS[key](dice) for key in keys}
        return form.format(**known), known
    if roll < 0.85:
        keys = dice.sample(list(FIELDS), dice.randint(2, 5))
        known = {key: FIELDS[key](dice) for key in keys}
    else:
        known = {variable(dice): dice.choice([number, name, invent, noun])(dice) for _ in range(dice.randint(1, 4))}
    mark, between = dice.choice([("=", ", "), (": ", ", "), (": ", "\n"), (" is ", ", "), (" = ", "; "), ("=", " ")])
    return between.join(f"{key}{mark}{value}" for key, value in known.items()), known


def kind_of(value):
    return {int: "integer", float: "number"}.get(type(value), "string")


def objects(dice, count):
    for _ in range(count):
        text, known = filled(dice)
        keys = [key for key in known if dice.random() < 0.8] or [next(iter(known))]
        if dice.random() < 0.15:
            dice.shuffle(keys)
        wanted = {key: known[key] for key in keys}
        properties = {key: {"type": kind_of(value)} for key, value in wanted.items()}
        schema = {"type": "object", "properties": properties, "required": keys}
        ask = dice.choice(ASKS if dice.random() < 0.7 else MORE_ASKS)
        question = ask.format(keys=", ".join(keys), text=text, schema=json.dumps(schema))
        yield row("json", question, json.dumps(wanted, ensure_ascii=False))


def lists(dice, count):
    """Words into lists and back."""
    for _ in range(count):
        throw = dice.choice([name, city, noun, invent, number, variable, lambda d: d.choice(THINGS)])
        words = [throw(dice) for _ in range(dice.randint(2, 6))]
        plain = [str(word) for word in words]
        comma = ", ".join(plain)
        task, said = dice.choice(
            [
                ("Write these as a JSON list: {c}", json.dumps(words)),
                ("JSON array of {c}", json.dumps(words)),
                ("Make a Python list of {c}.", fenced("python", f"items = {words!r}")),
                ("Make a bullet list: {c}", "\n".join(f"- {word}" for word in plain)),
                ("Number these: {c}", "\n".join(f"{i}. {word}" for i, word in enumerate(plain, 1))),
                ("Write each on its own line: {c}", "\n".join(plain)),
                ("Separate with commas: {s}", comma),
                ("Reverse the order: {c}", ", ".join(reversed(plain))),
                ("Which word comes first: {c}?", plain[0] + "."),
                ("Which word is last: {c}?", plain[-1] + "."),
                ("Repeat: {s}", " ".join(plain)),
                ("Join with dashes: {s}", "-".join(plain)),
            ]
        )
        yield row("rewrite", task.format(c=comma, s=" ".join(plain)), said)


SAYINGS = [
    "{name} lives in {city}",
    "{name} works as a {job}",
    "the {item} are {color}",
    "{name} bought {item} in {city}",
    "{name} and {other} went to {city}",
    "we need more {item}",
    "{name} is a good {job}",
    "they sold {count} {item}",
    "the {noun} of the {second} is {color}",
    "{name} sees the {animal} near the {noun}",
    "please send the {noun} to {name}",
    "the {noun} costs {price} dollars",
    "{word} means {noun}",
    "in {city} the {noun} is {status}",
    "my {animal} likes {item}",
]


def rewriting(dice, count):
    """The tasks of text_data, on words of every kind."""
    tasks = [
        ("Write this in upper case: {text}", str.upper),
        ("Convert to lower case: {upper}", str.lower),
        ("Make this a proper sentence: {lower}", lambda t: t[0].upper() + t[1:] + "."),
        ("Put this in quotes: {text}", lambda t: f'"{t}"'),
        ("Make a bullet list of these words: {text}", lambda t: "\n".join(f"- {w}" for w in t.split())),
        ("Separate these words with commas: {text}", lambda t: ", ".join(t.split())),
        ("Repeat after me: {text}", lambda t: t),
        ("Repeat this sentence: {first}", lambda t: t[0].upper() + t[1:] + "."),
        ("How many words has this text: {text}", lambda t: f"It has {len(t.split())} words."),
        ("Say: {text}", lambda t: t),
        ("Write exactly this: {text}", lambda t: t),
        ("Copy this text: {text}", lambda t: t),
        ("What is the first word of: {text}", lambda t: t.split()[0]),
        ("What is the last word of: {text}", lambda t: t.split()[-1]),
        ("Put this in brackets: {text}", lambda t: f"({t})"),
    ]
    for _ in range(count):
        values = {key: throw(dice) for key, throw in FIELDS.items()}
        values |= {"other": name(dice), "noun": noun(dice), "second": noun(dice), "word": invent(dice)}
        text = dice.choice(SAYINGS).format(**values)
        if dice.random() < 0.2:
            text = " ".join(dice.choice([noun, invent, name])(dice) for _ in range(dice.randint(2, 7)))
        task, made = dice.choice(tasks)
        first = text[0].upper() + text[1:] + "."
        question = task.format(text=text, upper=text.upper(), lower=text.lower(), first=first)
        # "Proper sentence" is asked in lower case, and only the first letter is known.
        source = text.lower() if "{lower}" in task else text
        yield row("rewrite", question, made(source))


MORE_ERRORS = [
    "Explain this error:\n\n{e}",
    "What does this error mean?\n\n{e}",
    "{e}",
    "{e}",
    "I get this error: {e}",
    "what is wrong here? {e}",
    "Explain: {e}",
    "Why? {e}",
    "How do I fix this error?\n\n{e}",
    "Find the root cause:\n\n{e}",
]


def messages(dice, count):
    """sources/messages.txt: message | cause | fix, with names put in for $v, $f and the like."""
    written = (SOURCES / "messages.txt").read_text(encoding="utf-8").splitlines()
    for i in range(count):
        line = written[i % len(written)]
        values = {
            "v": variable(dice),
            "f": function(dice),
            "p": file(dice, "sh" if "./" in line else None),
            "m": noun(dice) if dice.random() < 0.7 else f"{noun(dice)}_{noun(dice)}",
            "n": dice.randint(80, 65000),
            "h": FIELDS["host"](dice),
            "c": noun(dice),
            "t": noun(dice) + "s",
            "T": noun(dice).capitalize(),
        }
        message, cause, fix = Template(line).substitute(values).split("|")
        yield answer(dice.choice(MORE_ERRORS).format(e=message), cause, fix)


def raised(dice, count):
    """The errors of fault_data with names that are invented."""
    pools = {
        "functions": [function(dice) for _ in range(2000)],
        "values": [variable(dice) for _ in range(2000)],
        # Where a key is read as an attribute, dictionaries must not have it.
        "keys": sorted({variable(dice) for _ in range(2000)} - set(dir(dict))),
        "files": [file(dice, "py") for _ in range(600)],
        "absent": [file(dice) for _ in range(600)],
    }
    for question, cause, fix in fault_data.python(dice, count, pools):
        yield answer(question, cause, fix)


def named_code(dice, count):
    """sources/named.txt: code with the names that the question asks for."""
    written = list(entries("named.txt"))
    for _ in range(count):
        f, a, b = function(dice), variable(dice), variable(dice)
        if a == b:
            continue
        head, *more = f.split("_")
        values = {
            "f": f,
            "a": a,
            "b": b,
            "t": noun(dice).capitalize(),
            "n": number(dice),
            "m": dice.randint(2, 12),
            "word": noun(dice),
            "upper": a.upper(),
            "camel": head + "".join(part.capitalize() for part in more),
        }
        (kind, mark, ask), code = dice.choice(written)
        ask, code = (Template(text).substitute(values) for text in (ask, code))
        yield row(kind, ask, fenced(mark, code))


def renamed(dice, tasks, count):
    """Known functions under a name that the question gives."""
    for _ in range(count):
        task = dice.choice(tasks)
        old, new = task["name"], function(dice)
        ask = dice.choice(
            [
                "Write a function named {name} in Python that {what}.",
                "Write a Python function `{name}` that {what}.",
                "Implement {signature} in Python. It {what}.",
                "I need a Python function `{signature}`. It {what}.",
                "Write a Python function {signature} that {what}.",
                "Define {name} in Python: it {what}.",
            ]
        )
        code, signature = (task[key].replace(old, new) for key in ("code", "signature"))
        question = ask.format(name=new, signature=signature, what=task["what"])
        yield row("python", question, fenced("python", code, f"`{new}` {task['what']}."))


def queries(dice, count):
    """sources/queries.txt: SQL over tables and columns that are invented."""
    written = list(entries("queries.txt"))
    for _ in range(count):
        values = {"t": noun(dice) + "s", "c": variable(dice), "g": variable(dice), "k": number(dice)}
        if len(set(values.values())) < len(values):
            continue
        (what,), code = dice.choice(written)
        what, code = (Template(text).substitute(values) for text in (what, code))
        yield row("sql", dice.choice(ASK["sql"]).format(what=what), fenced("sql", code, f"It {what}."))


def dialogues(dice, count):
    """Answers that need what was said before."""
    for _ in range(count):
        who, where, thing, n = name(dice), city(dice), noun(dice), number(dice)
        first, asked, said = dice.choice(
            [
                (f"My name is {who}.", "What is my name?", f"Your name is {who}."),
                (f"I live in {where}.", "Where do I live?", f"You live in {where}."),
                (f"I am {who} from {where}.", "Where am I from?", f"You are from {where}."),
                (f"I am {who} from {where}.", "Who am I?", f"You are {who}."),
                (f"Remember the word {thing}.", "Which word?", f"The word is {thing}."),
                (f"The number is {n}.", "What is the number?", f"The number is {n}."),
                (f"hi, I am {who}", "what's my name?", f"Your name is {who}."),
            ]
        )
        reply = (
            f"Hello {who}! How can I help?"
            if who in first
            else dice.choice(["All right.", "Thank you, I will keep that in mind for this chat."])
        )
        said = [first, reply, asked, said]
        yield text_data.row("follow", *said)


def rows(dice, tasks, share):
    """All of it; `tasks` are Python functions, `share` scales how many rows there are."""
    count = lambda most: round(most * share)
    yield from objects(dice, count(16000))
    yield from lists(dice, count(5000))
    yield from rewriting(dice, count(9000))
    yield from messages(dice, count(9000))
    yield from raised(dice, count(7000))
    yield from named_code(dice, count(8000))
    yield from renamed(dice, tasks, count(6000))
    yield from queries(dice, count(5000))
    yield from dialogues(dice, count(2000))
