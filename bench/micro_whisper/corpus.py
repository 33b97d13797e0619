"""The vocabulary of the micro-Whisper, and the sentences to train and measure it."""

from __future__ import annotations

import itertools
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
"""Forty answers of a caller. The texts are in the training set on purpose; the measured audio is not."""


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
DIALOGUE: tuple[str, ...] = (
    "hello this is {first} from the clinic",
    "am i speaking with {first} {last}",
    "hello this is {first} from the clinic am i speaking with {first} {last}",
    "hello is that {first} {last}",
    "your appointment is on {day} {part}",
    "your appointment is on {day} {part} can you still come",
    "can you still come",
    "what day would suit you better",
    "okay what day would suit you better",
    "thank you what is your patient number please",
    "what is your patient number please",
    "thank you your patient number is {digits} is that right",
    "your patient number is {digits} is that right",
    "your patient number is {digits}",
    "is that right",
    "thank you we are open from {hour} to {hour} {day} to {day}",
    "we are open from {hour} to {hour} {day} to {day} and from {hour} to {hour} on {day}",
    "please bring your card and a list of your medicine",
    "is there anything else",
    "then i will see you next {day} {part}",
    "then i will see you next {day} {part} thank you goodbye",
    "thank you goodbye",
    "i am sorry goodbye",
    "i did not understand are you {first} {last}",
    "sorry i did not understand",
    "yes that is me",
    "yes this is {first} {last}",
    "no i can not come",
    "no i am sorry i can not",
    "next {day} {part}",
    "sorry can you repeat that please",
    "yes that is right",
)
"""Sentences of the demo's agent and of the person it calls; the slots vary."""

OUT_OF_VOCABULARY: tuple[str, ...] = (
    "the weather is lovely in paris this spring",
    "my dog ate the newspaper again",
    "could you turn the music down a little",
    "what time does the train leave for boston",
    "nobody told me about the extra fee",
)
"""Sentences that must get a low confidence."""

WORDS: tuple[str, ...] = tuple(
    sorted(
        {word for phrase in (*PHRASES, *DIALOGUE) for word in phrase.split() if "{" not in word}.union(
            *(DIGITS, TEENS, TENS, MONTHS, DAYS, ORDINALS, FIRST_NAMES, LAST_NAMES, COMMANDS),
        ),
    ),
)
"""The whole vocabulary, one token per word."""


def sentence(rng: random.Random) -> str:
    """Returns one training text. A third of the texts have free word order, so that the decoder listens
    instead of completing the forty phrases from memory."""
    kinds = (
        _any_words,
        _digit_string,
        _date,
        _day_part,
        _day_and_time,
        _name,
        _command,
        _phrase,
        _dialogue,
        _dictation,
    )
    weights = (26, 8, 6, 4, 3, 5, 6, 14, 18, 10)
    return rng.choices(kinds, weights)[0](rng)


def unseen(rng: random.Random, count: int) -> list[str]:
    """Returns digit strings, dates and names in combinations that no phrase contains."""
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


def _dialogue(rng: random.Random) -> str:
    return rng.choice(DIALOGUE).format_map(_Slots(rng))


def _dictation(rng: random.Random) -> str:
    """Returns digits as in people's numbers: with doubles and triples, alone or in a sentence."""
    count = rng.choice((4, 5, 6, 7, 7, 7))
    digits: list[str] = []
    while len(digits) < count:
        digits += [rng.choice(DIGITS)] * rng.choice((1, 1, 1, 2, 3))
    sentences = ("{}", "your patient number is {}", "your patient number is {} is that right")
    return rng.choice(sentences).format(" ".join(digits[:count]))


class _Slots(dict[str, str]):
    """Draws a new value for every slot."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    def __missing__(self, name: str) -> str:
        if name == "digits":
            return " ".join(self._rng.choice(DIGITS) for _ in range(7))
        choices = {
            "first": FIRST_NAMES,
            "last": LAST_NAMES,
            "day": DAYS[:7],
            "part": ("morning", "afternoon"),
            "hour": DIGITS[2:] + TEENS[:3],
        }
        return self._rng.choice(choices[name])


_PAUSES = {
    " am i ": ". am i ",
    " can you still": ". can you still",
    " what is your": ". what is your",
    " your patient number": ". your patient number",
    " is that right": ". is that right",
    " we are open": ". we are open",
    " and from ": ", and from ",
    " thank you goodbye": ". thank you, goodbye",
    "sorry can": "sorry, can",
    "hello this": "hello, this",
}
"""Pauses of the demo's agent, whose sentences have punctuation; transcripts have none."""

_NUMERALS = {word: str(value) for value, word in enumerate(("zero", *DIGITS[2:]))}


def spoken(text: str, rng: random.Random) -> str:
    """Returns `text` as given to the voice: half of the time with pauses, dictated digits also as
    numerals."""
    if rng.random() < 0.5:
        for plain, paused in _PAUSES.items():
            text = text.replace(plain, paused)
    if rng.random() < 0.5 and _longest_run_of_digits(text) >= 4:
        text = " ".join(_NUMERALS.get(word, word) for word in text.split())
    return text


def _longest_run_of_digits(text: str) -> int:
    runs = itertools.groupby(word.strip(".,") in _NUMERALS for word in text.split())
    return max((len(list(words)) for digits, words in runs if digits), default=0)
