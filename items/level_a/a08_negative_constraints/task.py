"""A08: a short notice with computed facts that keeps fifteen negative constraints."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import cast

from pytest_llmbench.bank import Item
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

FILE = "notice.txt"
UNFENCED = "unfenced_reply_taken_as_file"
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
UNITS = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
TENS = {2: "twenty", 3: "thirty", 4: "forty", 5: "fifty", 6: "sixty", 7: "seventy", 8: "eighty", 9: "ninety"}
PERSONS = frozenset({"i", "me", "my", "we", "us", "our", "you", "your"})
MARKS = frozenset("!:;()")
QUOTES = frozenset("'\"\u2018\u2019\u201c\u201d")
LONG = 6
DAY = 24 * 60

_WORD = re.compile(r"[^\W\d_]+")
_TOKEN = re.compile(r"[^\W\d_]+|[.!?]+")


@dataclass(frozen=True)
class Facts:
    """What one instance demands: the bounds of the rules and the words that must be there."""

    place: str
    other: str
    shuts: str
    reopens: str
    seats: str
    banned: tuple[str, ...]
    letter: str
    word_letters: int
    sentence_words: int
    line_characters: int
    least: int
    most: int

    @property
    def computed(self) -> dict[str, str]:
        """The phrases that stand nowhere in the prompt, by what they state."""
        return {"shuts": self.shuts, "reopens": self.reopens, "seats": f"{self.seats} seats"}


class Text:
    """A text taken apart once: characters, lines, words, paragraphs and sentences as the prompt defines them."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")

    @cached_property
    def characters(self) -> frozenset[str]:
        """Every character that occurs."""
        return frozenset(self.text)

    @cached_property
    def lettered(self) -> str:
        """The text with a space for everything that is alphanumeric, but neither a letter nor a decimal digit."""
        odd = {ord(c): " " for c in self.characters if c.isalnum() and not c.isalpha() and not c.isdecimal()}
        return self.text.translate(odd) if odd else self.text

    @cached_property
    def lines(self) -> list[str]:
        """The lines, without their ends."""
        return self.text.split("\n")

    @cached_property
    def spelled(self) -> list[str]:
        """The words, with upper and lower case as they are."""
        return _WORD.findall(self.lettered)

    @cached_property
    def words(self) -> list[str]:
        """The words in lower case."""
        return [word.lower() for word in self.spelled]

    @cached_property
    def paragraphs(self) -> list[list[str]]:
        """Runs of lines that are not empty."""
        found: list[list[str]] = [[]]
        for plain, line in zip(self.lines, self.lettered.split("\n"), strict=True):
            if plain and not plain.isspace():
                found[-1].append(line)
            elif found[-1]:
                found.append([])
        return found if found[-1] else found[:-1]

    @cached_property
    def _sentences(self) -> tuple[list[str], list[int], list[int]]:
        starts: list[str] = []
        lengths: list[int] = []
        per_paragraph: list[int] = []
        for paragraph in self.paragraphs:
            before, inside = len(starts), False
            for token in _TOKEN.findall("\n".join(paragraph)):
                if token[0] in ".!?":
                    inside = False
                elif inside:
                    lengths[-1] += 1
                else:
                    inside = True
                    starts.append(token.lower())
                    lengths.append(1)
            per_paragraph.append(len(starts) - before)
        return starts, lengths, per_paragraph

    @property
    def starts(self) -> list[str]:
        """The first word of every sentence, in lower case."""
        return self._sentences[0]

    @property
    def lengths(self) -> list[int]:
        """The number of words of every sentence."""
        return self._sentences[1]

    @property
    def per_paragraph(self) -> list[int]:
        """The number of sentences of every paragraph."""
        return self._sentences[2]

    def states(self, phrase: str) -> bool:
        """Whether the words of ``phrase`` stand side by side."""
        return f" {' '.join(_WORD.findall(phrase.lower()))} " in self._joined

    @cached_property
    def _joined(self) -> str:
        return f" {' '.join(self.words)} "


def shown(value: str) -> str:
    """``value`` as it may stand in evidence: escaped and at most 80 characters."""
    return ascii(value[:80])[:80]


def first_word(text: Text, offends: Callable[[str], bool]) -> str | None:
    """The first word, in lower case, that offends."""
    return next((f"word {shown(word)}" for word in text.words if offends(word)), None)


def first_character(text: Text, offending: Iterable[str]) -> str | None:
    """Where the first of the offending characters stands."""
    places = [(text.text.find(c), c) for c in offending if c in text.characters]
    if not places:
        return None
    at, character = min(places)
    line = text.text[:at].count("\n")
    return f"{shown(character)} in line {line + 1}: {shown(text.lines[line])}"


def no_digit(text: Text, facts: Facts) -> str | None:
    """Rule 1."""
    return first_character(text, [c for c in text.characters if c.isdigit()])


def no_question(text: Text, facts: Facts) -> str | None:
    """Rule 2."""
    return first_character(text, "?")


def no_marks(text: Text, facts: Facts) -> str | None:
    """Rule 3."""
    return first_character(text, MARKS)


def no_quotes(text: Text, facts: Facts) -> str | None:
    """Rule 4."""
    return first_character(text, QUOTES)


def no_capitals(text: Text, facts: Facts) -> str | None:
    """Rule 5."""
    found = (f"word {shown(w)}" for w in text.spelled if len(w) > 1 and w.isupper() and all(map(str.isupper, w)))
    return next(found, None)


def no_person(text: Text, facts: Facts) -> str | None:
    """Rule 6."""
    return first_word(text, PERSONS.__contains__)


def no_endings(text: Text, facts: Facts) -> str | None:
    """Rule 7."""
    return first_word(text, lambda word: word.endswith(("ly", "ing")))


def no_banned(text: Text, facts: Facts) -> str | None:
    """Rule 8."""
    return first_word(text, facts.banned.__contains__)


def no_letter(text: Text, facts: Facts) -> str | None:
    """Rule 9."""
    return first_word(text, lambda word: facts.letter in word)


def no_long_word(text: Text, facts: Facts) -> str | None:
    """Rule 10."""
    return first_word(text, lambda word: len(word) > facts.word_letters)


def no_repetition(text: Text, facts: Facts) -> str | None:
    """Rule 11."""
    seen: set[str] = set()
    for word in text.words:
        if len(word) >= LONG:
            if word in seen:
                return f"word {shown(word)} is there twice"
            seen.add(word)
    return None


def no_long_sentence(text: Text, facts: Facts) -> str | None:
    """Rule 12."""
    for start, length in zip(text.starts, text.lengths, strict=True):
        if length > facts.sentence_words:
            return f"the sentence that begins with {shown(start)} has {length} words"
    return None


def no_same_start(text: Text, facts: Facts) -> str | None:
    """Rule 13."""
    seen: set[str] = set()
    for start in text.starts:
        if start in seen:
            return f"two sentences begin with {shown(start)}"
        seen.add(start)
    return None


def no_alliteration(text: Text, facts: Facts) -> str | None:
    """Rule 14."""
    for one, two in pairwise(text.words):
        if one[0] == two[0]:
            return f"neighbours {shown(one[:38] + ' ' + two[:38])}"
    return None


def no_long_line(text: Text, facts: Facts) -> str | None:
    """Rule 15."""
    for number, line in enumerate(text.lines, 1):
        if len(line) > facts.line_characters:
            return f"line {number} has {len(line)} characters: {shown(line)}"
    return None


Rule = Callable[[Text, Facts], str | None]

PROHIBITIONS: dict[str, Rule] = {
    "p01": no_digit,
    "p02": no_question,
    "p03": no_marks,
    "p04": no_quotes,
    "p05": no_capitals,
    "p06": no_person,
    "p07": no_endings,
    "p08": no_banned,
    "p09": no_letter,
    "p10": no_long_word,
    "p11": no_repetition,
    "p12": no_long_sentence,
    "p13": no_same_start,
    "p14": no_alliteration,
    "p15": no_long_line,
}
"""Every rule of the prompt by its row: what offends first, or None where nothing does."""


def wrong_form(text: Text, facts: Facts) -> str | None:
    """What is wrong with title, paragraphs and sentences; None where nothing is."""
    first = text.lines[0].strip()
    if first.lower() != facts.place.lower():
        return f"the first line is not the title: {shown(first)}"
    if len(text.paragraphs) != 4 or len(text.paragraphs[0]) != 1:
        return f"{len(text.paragraphs)} blocks of text, not 4 with the title alone in the first"
    for number, sentences in enumerate(text.per_paragraph[1:], 1):
        if sentences != 3:
            return f"paragraph {number} has {sentences} sentences, not 3"
    return None


def wrong_length(text: Text, facts: Facts) -> str | None:
    """What is wrong with the number of words; None where nothing is."""
    count = len(text.words)
    return None if facts.least <= count <= facts.most else f"{count} words, not {facts.least} to {facts.most}"


JUDGED: dict[str, Rule] = {"form": wrong_form, "length": wrong_length, **PROHIBITIONS}
"""The rows that only a text with all of the required content can earn."""


def number_words(number: int) -> str:
    """A number below 100 in words, as far as this item needs them."""
    if number < len(UNITS):
        return UNITS[number]
    if number == 15:
        return "fifteen"
    tens, unit = divmod(number, 10)
    return f"{TENS[tens]}-{UNITS[unit]}" if unit else TENS[tens]


def moment_words(minute: int) -> str:
    """A minute of the week in the asked-for form."""
    day, rest = divmod(minute, DAY)
    hour, minutes = divmod(rest, 60)
    return f"{number_words((hour + 11) % 12 + 1)} {number_words(minutes)} on {WEEKDAYS[day]}"


def _fits(*phrases: str) -> bool:
    """No neighbours with one first letter, no long word twice: what rules 11 and 14 demand of the facts."""
    texts = [_WORD.findall(phrase) for phrase in phrases]
    long = [word for words in texts for word in words if len(word) >= LONG]
    apart = all(one[0] != two[0] for words in texts for one, two in pairwise(words))
    return apart and len(long) == len(set(long))


def _moments(seed: random.Random) -> tuple[int, int, int]:
    """The minutes of the week at which the hall shuts, the repair begins and the hall reopens."""
    shuts = seed.randrange(4) * DAY + seed.randrange(7, 17) * 60 + seed.randrange(10, 60, 5)
    begins = shuts + seed.randrange(35, 60, 5)
    later = seed.randrange(1, 6 - shuts // DAY)
    reopens = (shuts // DAY + later) * DAY + seed.randrange(7, 19) * 60 + seed.randrange(10, 60, 5)
    return shuts, begins, reopens


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """Draw names, moments, seats, forbidden words and bounds."""
    data = item.spec.data
    while True:
        shuts, begins, reopens = _moments(seed)
        remain = seed.choice(list(TENS)) * 10 + seed.randrange(1, 10)
        hours, minutes = divmod(reopens - begins, 60)
        seats = number_words(remain)
        if minutes >= 10 and hours >= 15 and _fits(moment_words(shuts), moment_words(reopens), f"{seats} seats"):
            break
    least = seed.choice((69, 70, 71))
    facts = Facts(
        place=seed.choice(data["places"]),
        other=seed.choice(data["others"]),
        shuts=moment_words(shuts),
        reopens=moment_words(reopens),
        seats=seats,
        banned=tuple(seed.choice(group) for group in data["banned"]),
        letter=seed.choice(data["letters"]),
        word_letters=seed.choice((9, 10)),
        sentence_words=seed.choice((11, 12)),
        line_characters=seed.choice((55, 56, 57, 58)),
        least=least,
        most=least + 14,
    )
    removed = seed.randrange(11, 40)
    prompt = item.render(
        place=facts.place,
        other=facts.other,
        begin_day=WEEKDAYS[begins // DAY],
        begin_time=f"{begins % DAY // 60:02}:{begins % 60:02}",
        lead=begins - shuts,
        hours=hours,
        minutes=minutes,
        total=remain + removed,
        removed=removed,
        banned=", ".join(facts.banned),
        letter=facts.letter,
        word_letters=facts.word_letters,
        sentence_words=facts.sentence_words,
        line_characters=facts.line_characters,
        least=facts.least,
        most=facts.most,
    )
    return Instance(item.spec, variant, run, prompt, data={"item": item, "facts": facts})


def grade(instance: Instance, delivery: Delivery) -> list[Verdict]:
    """Judge ``notice.txt``; form, length and rules count only where all of the content is there."""
    facts = cast("Facts", instance.data["facts"])
    delivered = delivery.files.get(FILE)
    if delivered is None or not delivered.strip():
        reason = f"{FILE} was not delivered" if delivered is None else f"{FILE} is empty"
        return [Verdict(row.id, False, reason) for row in instance.spec.rows]
    text = Text(delivered.strip("\r\n"))
    stated = {name: text.states(phrase) for name, phrase in facts.computed.items()}
    absent = [f"{name} ({facts.computed[name]})" for name, there in stated.items() if not there]
    if not text.states(facts.other):
        absent.append(f"the name {facts.other}")
    missing = f"missing: {', '.join(absent)}"
    verdicts = [_file(instance, delivery, delivered.strip(), any(stated.values()))]
    verdicts.append(Verdict("content", not absent, missing if absent else "all required content is there"))
    for row, rule in JUDGED.items():
        if absent:
            verdicts.append(Verdict(row, False, f"does not count without the required content; {missing}"))
        else:
            found = rule(text, facts)
            verdicts.append(Verdict(row, found is None, "kept" if found is None else found))
    return verdicts


def _file(instance: Instance, delivery: Delivery, text: str, stated: bool) -> Verdict:
    if UNFENCED in delivery.repairs:
        return Verdict("file", False, f"the whole reply was taken as {FILE}, it names no file")
    if text in instance.prompt:
        return Verdict("file", False, f"{FILE} only repeats the prompt: {shown(text)}")
    if not stated:
        return Verdict("file", False, f"{FILE} states none of the computed facts")
    return Verdict("file", True, f"{FILE} was delivered with {len(text)} characters")


def _filled(instance: Instance, name: str) -> str:
    facts = cast("Facts", instance.data["facts"])
    item = cast("Item", instance.data["item"])
    return item.read(
        name,
        place=facts.place,
        other=facts.other,
        shuts=facts.shuts,
        reopens=facts.reopens,
        seats=facts.seats,
    )


def golden(instance: Instance) -> Reference:
    """The notice that keeps every rule."""
    return Reference(files={FILE: _filled(instance, "golden/notice.txt")})


def defects(instance: Instance) -> Mapping[str, Reference]:
    """The notices beside the item, and the golden one without a fence."""
    found = {
        name: Reference(files={FILE: _filled(instance, f"references/{name}.txt")})
        for name in instance.spec.references
        if name != "unfenced"
    }
    return {**found, "unfenced": Reference(text=_filled(instance, "golden/notice.txt"))}
