"""More wordings of the questions of sources/talk.txt, of definitions and of usual functions, lines of
code explained, and questions nobody can answer.

None of these rows is asked by the evaluation, and those that its hash holds out are not learned.
"""

import itertools
import re
from string import Template

import code_data
import fault_data
import teacher_data
import text_data
from copy_data import LISTS, THINGS, city, file, invent, name, noun, number, variable
from common import SOURCES
from text_data import row

BEASTS = "spider ant bee elephant whale shark octopus penguin lion tiger bear wolf frog bat crab eagle".split()
SUPERLATIVES = [*"largest smallest tallest oldest fastest longest best".split(), "most expensive", "most famous"]
# How many wordings of one pattern are used.
MOST = 200
NO_SENSE = "I do not understand that. Ask me for a short function, or paste an error message."


def parts(pattern):
    """The choices of a pattern, one after the other: `(a|b)`, `[a]` or plain text."""
    depth, part = 0, ""
    for letter in pattern:
        if letter in "([":
            if depth == 0:
                yield [part]
                part = ""
            depth += 1
        part += letter
        if letter in ")]":
            depth -= 1
            if depth == 0:
                inner = part[1:-1]
                if part[0] == "[":
                    yield ["", *wordings(inner)]
                else:
                    yield inner.split("|")
                part = ""
    yield [part]


def wordings(pattern):
    """Everything that a pattern can say."""
    for chosen in itertools.product(*parts(pattern)):
        yield re.sub(" +", " ", "".join(chosen)).replace(" ,", ",").strip()


def known(dice):
    """The patterns of sources/wordings.txt with the answers of talk.txt."""
    answers = {}
    for said in text_data.talk():
        if said["kind"] == "self":
            answers.setdefault(said["intent"], said["messages"][1]["content"])
    for line in (SOURCES / "wordings.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        intent, pattern = line.split(": ", 1)
        found = list(dict.fromkeys(wordings(pattern)))
        for question in dice.sample(found, min(MOST, len(found))):
            mark = "?" if re.match("(how|what|who|which|where|why|is|are|do|does|can) ", question) else ""
            yield row("self", question + mark, answers[intent], vary=True)


def definitions():
    """The asks of terms.txt for the questions of words.txt."""
    asks = ("what's {x}", "Explain {x}.", "Define {x}.", "What does {x} mean?", "{x}?", "Tell me about {x}.")
    answers = {}
    for said in text_data.definitions():
        question, meaning = (m["content"] for m in said["messages"])
        if found := re.fullmatch(r"what is ([^?0-9]+)\?", question):
            answers.setdefault(found[1], meaning)
    for term, meaning in answers.items():
        for ask in asks:
            question = ask.format(x=term)
            yield row("define", question[0].upper() + question[1:], meaning, vary=True)


def unknown(dice, count):
    """What a tiny model cannot know, and what means nothing."""
    for _ in range(count):
        who, where, what = name(dice), city(dice), noun(dice)
        asked = dice.choice(
            [
                f"who is {who}?",
                f"who is {who} {name(dice)}?",
                f"what is the population of {where}?",
                f"how many people live in {where}?",
                f"who wrote the {what} of {where}?",
                f"what is the price of a {what}?",
                f"how much does a {what} cost?",
                f"which {what} is the best?",
                f"recommend a {what}",
                f"how do I repair a {what}?",
                f"who invented the {what}?",
                f"tell me about {who} {name(dice)}",
                f"tell me about the history of {where}",
                f"when was {where} founded?",
                f"where is {where}?",
                f"how far is {where}?",
                f"translate {what} to French",
                f"how do I cook {what}?",
                f"what is the best {what} in {where}?",
                f"who won the {what} cup?",
                f"what is {number(dice)} * {number(dice) + 1000}?",
                f"what did {who} say?",
                f"write a novel about a {what}",
                f"write an essay about {where}",
                f"when was {who} born?",
                f"how old is {who}?",
                f"what is {invent(dice)}?",
                f"what is a {invent(dice)}?",
                f"explain {invent(dice)}",
                f"what does {invent(dice)} mean?",
                f"what is the {what} of {where}?",
                f"which is the largest {what} of {where}?",
                f"what is {who}'s name?",
            ]
        )
        yield row("self", asked, teacher_data.UNKNOWN, vary=True)
    parts = "legs eyes wings teeth ears bones hearts feet toes tails horns arms fins".split()
    colour = LISTS["colours"]
    for _ in range(3 * count):
        who, where, what, thing = name(dice), city(dice), noun(dice), dice.choice(THINGS)
        beast, part = dice.choice(LISTS["animals"] + BEASTS), dice.choice(parts)
        year = dice.randint(900, 2020)
        asked = dice.choice(
            [
                f"how many {part} does a {beast} have?",
                f"how many {part} do {beast}s have?",
                f"does a {beast} have {part}?",
                f"do {beast}s have {part}?",
                f"what do {beast}s eat?",
                f"where do {beast}s live?",
                f"how long does a {beast} live?",
                f"how fast is a {beast}?",
                f"how heavy is a {beast}?",
                f"how tall is a {beast}?",
                f"why do {beast}s sleep?",
                f"can {beast}s swim?",
                f"can a {beast} fly?",
                f"is a {beast} a mammal?",
                f"what colour is a {beast}?",
                f"what is the {dice.choice(SUPERLATIVES)} {beast}?",
                f"what is the {dice.choice(SUPERLATIVES)} {what} in the world?",
                f"which {beast} is the {dice.choice(SUPERLATIVES)}?",
                f"how big is {where}?",
                f"how old is {where}?",
                f"how tall is {who}?",
                f"what time is it in {where}?",
                f"what is the weather in {where}?",
                f"will it rain in {where} tomorrow?",
                f"what happened in {year}?",
                f"what happened in {where} in {year}?",
                f"who was king in {year}?",
                f"who is the mayor of {where}?",
                f"who is the president of {where}?",
                f"which river flows through {where}?",
                f"what language do people speak in {where}?",
                f"how do I get from {where} to {city(dice)}?",
                f"what should I see in {where}?",
                f"who painted the {what}?",
                f"who wrote {invent(dice)}?",
                f"who sings {invent(dice)}?",
                f"who discovered {thing}?",
                f"write a haiku about {thing}",
                f"write a poem about a {beast}",
                f"write a song about {where}",
                f"write a story about a {beast}",
                f"write a letter to {who}",
                f"tell me a story about {who}",
                f"are {thing} healthy?",
                f"how are {thing} made?",
                f"how do I clean {thing}?",
                f"how do I draw a {beast}?",
                f"where can I buy {thing}?",
                f"what are {thing} made of?",
                f"what is {what} in Spanish?",
                f"how do you say {what} in German?",
                f"translate to Italian: the {what} is {dice.choice(colour)}",
                f"how many {thing} are there?",
                f"how many {thing} fit into a {what}?",
                f"which is better, {what} or {noun(dice)}?",
                f"what rhymes with {what}?",
                f"why is {what} so {dice.choice(['loud', 'slow', 'hard', 'expensive', 'popular'])}?",
                f"what does {who} do?",
                f"who is {who}'s wife?",
                f"did {who} win?",
                f"what is the square root of {number(dice) + 1000}?",
                f"what is {number(dice)} / {number(dice) + 1000}?",
                f"how many kilometres are {number(dice)} miles?",
                f"what day was it on {dice.randint(1, 28)} May {year}?",
            ]
        )
        yield row("self", asked, teacher_data.UNKNOWN, vary=True)
    letters = "abcdefghijklmnopqrstuvwxyz"
    keys = "asdfghjklqwertyuiopzxcvbnm"
    for _ in range(count // 2):
        at = dice.randrange(20)
        asked = dice.choice(
            [
                "".join(dice.choice(letters) for _ in range(dice.randint(3, 9))),
                keys[at : at + dice.randint(3, 6)],
                keys[at : at + dice.randint(2, 4)] * 2,
                dice.choice(letters) * dice.randint(2, 6),
                dice.choice("!?.,;-+*#") * dice.randint(1, 5),
                str(number(dice)),
                f"{invent(dice)} {invent(dice)}",
                f"{dice.choice(['la', 'bla', 'na', 'ha', 'foo', 'bar', 'ho'])} " * dice.randint(2, 3),
                "".join(dice.choice(letters) for _ in range(4)) + str(number(dice)),
            ]
        )
        yield row("self", asked.strip(), NO_SENSE)


# What people call the usual functions: the name of the task, then words for what it computes.
FUNCTIONS = {
    "fibonacci": ["the nth Fibonacci number", "the n-th Fibonacci number", "Fibonacci numbers", "fibonacci"],
    "factorial": ["the factorial of a number", "factorials", "n!"],
    "is_prime": ["prime numbers", "checking whether a number is prime", "a primality test"],
    "gcd": ["the greatest common divisor", "the gcd of two numbers"],
    "is_palindrome": ["palindromes", "checking a palindrome"],
    "reverse_string": ["reversing a string", "a reversed string"],
    "binary_search": ["binary search", "a binary search", "searching a sorted list"],
    "linear_search": ["linear search", "a linear search"],
    "bubble_sort": ["bubble sort", "a bubble sort"],
    "insertion_sort": ["insertion sort"],
    "selection_sort": ["selection sort"],
    "quicksort": ["quicksort", "quick sort"],
    "fizzbuzz": ["FizzBuzz", "fizz buzz"],
    "lcm": ["the least common multiple", "the lcm of two numbers", "lcm"],
    "is_anagram": ["anagrams", "checking two words for an anagram"],
    "count_vowels": ["counting vowels", "the number of vowels in a string"],
    "is_leap_year": ["leap years", "checking for a leap year"],
    "power": ["the power of a number"],
    "flatten": ["flattening a nested list"],
    "remove_duplicates": ["removing duplicates from a list"],
    "second_largest": ["the second largest number of a list"],
    "sum_digits": ["the sum of the digits of a number", "the digit sum"],
    "transpose": ["the transpose of a matrix", "transposing a matrix"],
    "prime_factors": ["prime factors", "the prime factors of a number"],
    "primes_up_to": ["all primes up to n"],
}


def functions():
    """The usual functions, asked for by what they compute."""
    asks = (
        "Write a Python function for {x}.",
        "python function for {x}",
        "Python code for {x}",
        "{x} in Python",
        "Give me a function for {x}.",
        "How do I compute {x} in Python?",
        "implement {x}",
    )
    for task in [*code_data.tasks(), *teacher_data.known_tasks()]:
        answer = code_data.fenced("python", task["code"], f"`{task['name']}` {task['what']}.")
        for what, ask in itertools.product(FUNCTIONS.get(task["name"], ()), asks):
            yield row("python", ask.format(x=what), answer, vary=True)


# Code | what it does; $x, $y, $z are variables, $n a number, $f a file.
LINES = """
for i in range($n): print(i) | It prints the numbers from 0 up to $n, without $n itself.
for $x in $y: print($x) | It prints each item of `$y` on a line of its own.
for i, $x in enumerate($y): print(i, $x) | It prints each item of `$y` after its index.
for $x, $z in $y.items(): print($x, $z) | It prints each key of the dictionary `$y` with its value.
while $x > 0: $x -= 1 | It counts `$x` down to 0.
$x = [$z * $n for $z in $y] | It makes a list `$x` of the items of `$y`, each times $n.
$x = [$z for $z in $y if $z > $n] | It makes a list `$x` of the items of `$y` that are greater than $n.
$x = {$z: len($z) for $z in $y} | It makes a dictionary `$x` of the items of `$y` with their lengths.
if not $x: return | It ends the function if `$x` is empty, zero, False or None.
if $x is None: $x = $n | It gives `$x` the value $n if it is None.
$x = $y or $z | `$x` becomes `$y`, or `$z` if `$y` is empty, zero, False or None.
$x = $y if $z else $n | `$x` becomes `$y` if `$z` is true, else $n.
$x, $y = $y, $x | It swaps the values of `$x` and `$y`.
$x += $n | It adds $n to `$x`.
$x.append($y) | It adds `$y` at the end of the list `$x`.
$x.sort() | It sorts the list `$x` in place.
$x = sorted($y) | It makes a sorted copy of `$y` and calls it `$x`.
$x = sorted($y, reverse=True) | It makes a copy of `$y`, sorted from the greatest to the least, and calls it `$x`.
$x = $y[::-1] | It makes a reversed copy of `$y` and calls it `$x`.
$x = $y[:$n] | It takes the first $n items of `$y` and calls them `$x`.
$x = len($y) | It stores the length of `$y` in `$x`.
$x = sum($y) / len($y) | It stores the average of `$y` in `$x`.
$x = max($y) | It stores the greatest item of `$y` in `$x`.
$x = set($y) | It makes a set of the items of `$y`, each once, and calls it `$x`.
$x = $y.split(",") | It splits the text `$y` at its commas and calls the list `$x`.
$x = ", ".join($y) | It joins the texts of `$y` with commas and calls the result `$x`.
$x = $y.strip() | It removes blanks from both ends of `$y` and calls the result `$x`.
$x = int($y) | It converts `$y` to a whole number and calls it `$x`.
$x = $y.get($z, $n) | It looks up `$z` in the dictionary `$y`; `$x` is $n if it is not there.
del $x[$y] | It removes the entry `$y` from `$x`.
print($x) | It prints `$x`.
print(len($x)) | It prints the length of `$x`.
assert $x > $n | It raises an AssertionError unless `$x` is greater than $n.
raise ValueError("$x") | It ends with a ValueError whose text is "$x".
import $x | It loads the module `$x`.
with open("$f") as file: $x = file.read() | It reads the whole file `$f` into `$x` and closes it.
return $x * $y | It returns the product of `$x` and `$y`.
return $x + $y | It returns the sum of `$x` and `$y`.
$x = lambda $y: $y * $n | It makes a function `$x` that returns its argument times $n.
"""


def lines(dice, count):
    """Single lines of Python with names that are invented, and what they do."""
    asks = (
        "Explain this: {x}",
        "explain this code: {x}",
        "What does this do? {x}",
        "What does `{x}` do?",
        "Explain {x}",
        "what is this: {x}",
        "What does this code do?\n\n```python\n{x}\n```",
        "Explain this line:\n\n{x}",
    )
    known = [line.split(" | ") for line in LINES.strip().splitlines()]
    for i in range(count):
        code, said = known[i % len(known)]
        values = {"x": variable(dice), "y": variable(dice), "z": variable(dice), "n": dice.randint(2, 20)}
        if len({values["x"], values["y"], values["z"]}) < 3:
            continue
        values["f"] = file(dice)
        code, said = (Template(text).substitute(values) for text in (code, said))
        yield row("explain", dice.choice(asks).format(x=code), said)


# Modules that are really missing on new machines; after the colon, what to install for them.
PACKAGES = """
requests numpy pandas flask django redis torch matplotlib fastapi httpx pydantic aiohttp yaml:pyyaml
sklearn:scikit-learn bs4:beautifulsoup4 PIL:pillow cv2:opencv-python scipy seaborn tensorflow keras transformers
openai ollama tqdm click rich pytest sqlalchemy psycopg2:psycopg2-binary pymongo boto3 jinja2 lxml selenium
openpyxl nltk spacy plotly streamlit uvicorn celery dotenv:python-dotenv dateutil:python-dateutil jwt:pyjwt
serial:pyserial cryptography paramiko websockets grpc:grpcio google.protobuf:protobuf pip setuptools wheel
polars pyarrow numba cython networkx sympy gradio langchain logkit
""".split()


def packages():
    """A module that is missing, by its real name, as it is typed or pasted."""
    asks = (
        "{e}",
        "I get this error: {e}",
        "What does this mean? {e}",
        "how do I fix {e}",
        "Explain this error: {e}",
        "{e} how to fix?",
    )
    errors = (
        "ModuleNotFoundError: No module named '{m}'",
        "No module named '{m}'",
        "ImportError: No module named {m}",
        "no module named {m}",
    )
    for package, error, ask in itertools.product(PACKAGES, errors, asks):
        module, _, other = package.partition(":")
        question = ask.format(e=error.format(m=module))
        fix = f"install it with `pip install {other or module}`"
        yield fault_data.answer(question, f"the module `{module}` is not installed", fix)


def rows(dice):
    yield from known(dice)
    yield from packages()
    yield from definitions()
    yield from functions()
    yield from lines(dice, 4000)
    yield from unknown(dice, 2400)
