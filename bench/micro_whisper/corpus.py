"""The words the micro-Whisper knows and the sentences it is trained and measured on."""

from __future__ import annotations

import random

PHRASES: tuple[str, ...] = (
    "yes",
    "no",
    "yes please",
    "no thank you",
    "that is correct",
    "that is not right",
    "one two three four",
    "five five five zero one four two",
    "nine eight seven six five",
    "zero three one seven two two eight",
    "four seven one one",
    "monday",
    "tuesday afternoon",
    "next friday morning",
    "october fourteenth",
    "the twenty third of march",
    "january first nineteen eighty five",
    "tomorrow at three thirty",
    "ten o'clock",
    "half past nine",
    "my name is john smith",
    "mary johnson",
    "david brown",
    "sarah williams",
    "it is robert miller",
    "i would like to make an appointment",
    "i want to cancel my appointment",
    "can i speak to a person",
    "i need help with my bill",
    "what are your opening hours",
    "how much does it cost",
    "where are you located",
    "can you repeat that please",
    "i want to talk about my order",
    "please hold on a moment",
    "what is my account balance",
    "i did not receive my package",
    "transfer me to sales",
    "goodbye",
    "i do not understand the question",
)
"""Forty answers of a caller. Closed on purpose: the texts are in the training set, the audio is not."""


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


DIGITS = _split("zero oh one two three four five six seven eight nine")
TEENS = _split("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen")
TENS = _split("twenty thirty forty fifty")
MONTHS = _split("january february march april may june july august september october november december")
DAYS = _split("monday tuesday wednesday thursday friday saturday sunday today tomorrow")
ORDINALS = _split(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth "
    "thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth thirtieth",
)
FIRST_NAMES = _split("john mary david sarah robert")
LAST_NAMES = _split("smith johnson brown williams miller")
COMMANDS = _split(
    "okay sure correct right wrong stop help agent operator "
    "hello repeat cancel billing sales support morning evening afternoon",
)
OUT_OF_VOCABULARY: tuple[str, ...] = (
    "the weather is lovely in paris this spring",
    "my dog ate the newspaper again",
    "could you turn the music down a little",
    "what time does the train leave for boston",
    "nobody told me about the extra fee",
)
"""Sentences whose confidence must come out low."""

WORDS: tuple[str, ...] = tuple(
    sorted(
        {word for phrase in PHRASES for word in phrase.split()}.union(
            *(DIGITS, TEENS, TENS, MONTHS, DAYS, ORDINALS, FIRST_NAMES, LAST_NAMES, COMMANDS),
        ),
    ),
)
"""The whole vocabulary: one token each."""


def sentence(rng: random.Random) -> str:
    """One training text. The mixture keeps word order free in a third of them, so that the decoder listens
    instead of completing the forty phrases from memory."""
    kinds = (_any_words, _digit_string, _date, _day_part, _day_and_time, _name, _command, _phrase)
    weights = (35, 10, 8, 4, 3, 5, 7, 28)
    return rng.choices(kinds, weights)[0](rng)


def unseen(rng: random.Random, count: int) -> list[str]:
    """Digit strings, dates and names in combinations that no phrase contains."""
    makers = (_digit_string, _date, _name)
    return [makers[index % len(makers)](rng) for index in range(count)]


def _any_words(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 6)))


def _digit_string(rng: random.Random) -> str:
    return " ".join(rng.choice(DIGITS) for _ in range(rng.randint(1, 7)))


def _date(rng: random.Random) -> str:
    month, day = rng.choice(MONTHS), rng.choice(ORDINALS)
    return f"the {day} of {month}" if rng.random() < 0.4 else f"{month} {day}"


def _day_part(rng: random.Random) -> str:
    return f"{rng.choice(DAYS)} {rng.choice(('morning', 'afternoon', 'evening'))}"


def _day_and_time(rng: random.Random) -> str:
    before = rng.choice(("next ", ""))
    minutes = rng.choice(("thirty", "o'clock", "fifteen"))
    return f"{before}{rng.choice(DAYS)} at {rng.choice(DIGITS[2:] + TEENS)} {minutes}"


def _name(rng: random.Random) -> str:
    return f"{rng.choice(('my name is ', 'it is ', ''))}{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}"


def _command(rng: random.Random) -> str:
    return rng.choice((*COMMANDS, "yes", "no", "yes please", "no thank you"))


def _phrase(rng: random.Random) -> str:
    return rng.choice(PHRASES)
