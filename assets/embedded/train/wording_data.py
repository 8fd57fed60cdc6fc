"""More wordings of the questions of sources/talk.txt, and of definitions; questions nobody can answer.

None of these rows is asked by the evaluation, and those that its hash holds out are not learned.
"""

import itertools
import re

import text_data
from copy_data import city, invent, name, noun, number
from common import SOURCES
from text_data import row

# How many wordings of one pattern are used.
MOST = 200
NO_SENSE = "I do not understand that. Ask me for a short function, or paste an error message."
UNKNOWN = "I do not know. I am a tiny model without a network; a larger one knows more (`llmsrv install-model`)."


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
        yield row("self", asked, UNKNOWN, vary=True)
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


def rows(dice):
    yield from known(dice)
    yield from definitions()
    yield from unknown(dice, 2400)
