"""The eighteen scenarios: cues of the caller, words of the agent, faults of line and models, and the wanted
outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

import numpy as np

from bench.conversation import echo as echoes
from bench.conversation import noises, sounds
from bench.conversation.caller import Anchor, Cue, Ending
from bench.conversation.echo import Echo
from bench.conversation.sounds import Phrasebook, Sound
from bench.conversation.stubs import Fault, Part
from pipeline.audio import Pcm
from pipeline.speech import Expected

TURNS: Final = (
    "I would like to book a table for two on Friday evening.",
    "My parcel has not arrived and I want to know where it is.",
    "Can you tell me when your shop opens tomorrow?",
    "I need to change the address of my last order.",
    "Yes please.",
    "Could you send the invoice to my office again?",
    "The printer that you sent me does not work.",
    "No, thank you.",
    "We are four people and one small dog.",
    "How much does it cost?",
    "Tuesday.",
    "I already paid that last month.",
    "Is there a cheaper one?",
    "That would be great.",
)
QUESTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Yes please.": "I can send you the invoice by mail. Would you like that?",
        "No, thank you.": "Is there anything else I can do for you?",
        "We are four people and one small dog.": "How many of you will there be?",
        "Tuesday.": "Which day would suit you best?",
        "That would be great.": "I could book you a table at the window. Shall I?",
    }
)
"""The agent's question before those turns that do not answer "how may I help you"."""

HALVES: Final = (
    ("I would like to book a table for two and", "a high chair for the baby."),
    ("I am calling because", "my parcel has not arrived."),
    ("My order number is on the invoice and the", "invoice says next Tuesday."),
    ("I want to change the delivery", "to my new address in Boston."),
    ("The problem is", "that the printer stopped after two pages."),
    ("Can you send it to", "my brother in Chicago?"),
    ("We ordered three chairs", "on the first of March."),
    ("I think", "it was the green one."),
    ("If it rains tomorrow", "we would rather come on Sunday."),
    ("My name is", "Susan Baker."),
    ("I was there on Monday but", "nobody opened the door."),
    ("It should arrive before", "the end of the week."),
)
FILLED: Final = (
    ("I would like to um", "move my appointment to Monday."),
    ("It is uh", "the blue one."),
    ("We need uh", "three of them."),
    ("Maybe um", "around seven."),
    ("The number on it is um", "hard to read."),
)
DIGITS: Final = ("four one five", "five five two", "six seven one", "nine zero three", "two eight four")
BACKCHANNELS: Final = ("Uh-huh.", "Yeah.", "Okay.", "Right.", "I see.")
INTERRUPTIONS: Final = (
    "Wait, that is not what I asked for.",
    "Stop, I only want the price.",
    "Sorry, can I say something about the address?",
    "No, I need to talk to a person.",
)
GROWING: Final = (("Yeah", "but I already paid that invoice."), ("Okay", "so when does the driver come?"))
ASIDES: Final = (
    "Honey, did you feed the dog?",
    "Put the bag over there.",
    "I am on the phone, just a minute.",
)
UMS: Final = ("Um.", "Uh.")
STORY: Final = (
    "I ordered three chairs on the first of March.",
    "They were delivered to my neighbour by mistake.",
    "He brought them over on Monday evening.",
    "Then I saw that one of them was broken.",
    "So I would like to send that one back.",
)
PHRASES: Final = (
    *TURNS, *(" ".join(pair) for pair in (*HALVES, *FILLED, *GROWING)),
    *DIGITS, *BACKCHANNELS, *INTERRUPTIONS, *ASIDES, *UMS, *STORY,
)  # fmt: skip

SPEECH: Final = Part(
    greeting="Good morning. Your parcel left the warehouse early this morning and is expected before the "
    "evening, the driver will ring you shortly before arriving, and you may of course change the address, "
    "the day or the hour until noon if that is any better for you and for your neighbours."
)
ASKING: Final = Part(
    greeting="Please tell me your telephone number.", expected=Expected(kinds=("digits",), digits=9)
)

HELPING: Final = Part()


class Wanted(Enum):
    """What the agent should do."""

    ANSWERS = auto()  # answers each turn once, after its end
    DICTATION = auto()  # as ANSWERS, and has all the digits
    YIELDS = auto()  # stops, and answers
    GOES_ON = auto()  # neither stops nor answers
    RESCUES = auto()  # says something within 2 s, or records the cause
    KEYED = auto()  # has all the keys
    SAYS_GOODBYE = auto()  # asks again, and hangs up in the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One call. `floor_s`: where in a cue's sound the words begin that claim the floor."""

    wanted: Wanted
    cues: tuple[Cue, ...] = ()
    part: Part = HELPING
    ending: Ending = Ending.ANSWERED
    fault: Fault = Fault.NONE
    background: Pcm | None = None
    echo: Echo | None = None
    loss: float = 0.0
    jitter_s: float = 0.0
    limit_s: float = 30.0
    floor_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario. `make(dice)` returns a call; `metric`: the row of the table that it counts for."""

    name: str
    group: str
    metric: str
    make: Callable[[Dice], Script]


Noise = Callable[[np.random.Generator, float, float], Pcm]


class Dice:
    """The random choices of one call; the same seed gives the same call."""

    def __init__(self, book: Phrasebook, name: str, seed: int) -> None:
        self.rng = np.random.default_rng((sum(map(ord, name)), seed))
        self.voice = int(self.rng.integers(len(sounds.VOICES)))
        self._book = book

    def say(self, text: str) -> Sound:
        """Returns `text` in the call's voice."""
        return self._book(text, self.voice)

    def one(self, texts: tuple[str, ...]) -> Sound:
        """Returns one of `texts` in the call's voice."""
        return self.say(texts[int(self.rng.integers(len(texts)))])

    def turn(self) -> tuple[Sound, str]:
        """Returns one of `TURNS`, and the question that it answers."""
        text = TURNS[int(self.rng.integers(len(TURNS)))]
        return self.say(text), QUESTIONS.get(text, HELPING.greeting)

    def pair(self, pairs: tuple[tuple[str, str], ...]) -> tuple[Sound, Sound]:
        """Returns the two parts of one of `pairs`, cut from the whole sentence."""
        first, second = pairs[int(self.rng.integers(len(pairs)))]
        return self.say(f"{first} {second}").cut(len(first.split()))

    def between(self, low: float, high: float) -> float:
        """Returns a number between `low` and `high`."""
        return float(self.rng.uniform(low, high))


def _answer(dice: Dice, sound: Sound) -> Script:
    return Script(wanted=Wanted.ANSWERS, cues=(Cue(Anchor.AGENT_DONE, dice.between(0.1, 0.6), sound),))


def _over(dice: Dice, sound: Sound, wanted: Wanted, at: tuple[float, float] = (2.0, 5.0)) -> Script:
    ending = Ending.ANSWERED if wanted is Wanted.YIELDS else Ending.FINISHED
    cue = Cue(Anchor.AGENT_BEGAN, dice.between(*at), sound)
    return Script(wanted=wanted, cues=(cue,), part=SPEECH, ending=ending)


def _clean(dice: Dice) -> Script:
    sound, question = dice.turn()
    return replace(_answer(dice, sound), part=Part(greeting=question))


def _pause(dice: Dice) -> Script:
    first, second = dice.pair(HALVES)
    return _answer(dice, first.then(dice.between(0.3, 1.0), second))


def _filled(dice: Dice) -> Script:
    first, second = dice.pair(FILLED)
    return _answer(dice, first.then(dice.between(0.4, 1.0), second))


def _digits(dice: Dice) -> Script:
    groups = [dice.one(DIGITS) for _ in range(3)]
    whole = groups[0]
    for group in groups[1:]:
        whole = whole.then(dice.between(0.4, 1.2), group)
    return replace(_answer(dice, whole), wanted=Wanted.DICTATION, part=ASKING)


def _backchannel(dice: Dice) -> Script:
    return _over(dice, dice.one(BACKCHANNELS), Wanted.GOES_ON)


def _interruption(at: tuple[float, float]) -> Callable[[Dice], Script]:
    return lambda dice: _over(dice, dice.one(INTERRUPTIONS), Wanted.YIELDS, at)


def _growing(dice: Dice) -> Script:
    """The floor is claimed from the first word that is no backchannel."""
    first, second = dice.pair(GROWING)
    gap_s = dice.between(0.1, 0.4)
    script = _over(dice, first.then(gap_s, second), Wanted.YIELDS)
    return replace(script, floor_s=first.seconds + gap_s)


def _noise(make: Callable[[np.random.Generator], Sound]) -> Callable[[Dice], Script]:
    return lambda dice: _over(dice, make(dice.rng), Wanted.GOES_ON)


def _um(dice: Dice) -> Script:
    return _over(dice, dice.one(UMS), Wanted.GOES_ON)


def _noisy(
    make: Callable[[np.random.Generator, float, float], Pcm], snr_db: float
) -> Callable[[Dice], Script]:
    def script(dice: Dice) -> Script:
        background = make(dice.rng, 4.0, sounds.SPEECH_DBOV - snr_db)
        first = _clean(dice)
        again = Cue(Anchor.AGENT_DONE, dice.between(0.1, 0.6), dice.one(TURNS))
        return replace(first, cues=(*first.cues, again), background=background, limit_s=45.0)

    return script


def _aside(lower_db: float, confidence: float) -> Callable[[Dice], Script]:
    """Words to another person, after an ordinary turn to the agent."""

    def script(dice: Dice) -> Script:
        aside = dice.one(ASIDES).quieter(lower_db, confidence=confidence)
        first = _clean(dice)
        return Script(
            wanted=Wanted.GOES_ON,
            cues=(*first.cues, Cue(Anchor.AGENT_AGAIN, dice.between(2.0, 5.0), aside)),
            part=Part(greeting=first.part.greeting, answer=SPEECH.greeting),
            ending=Ending.FINISHED,
            limit_s=45.0,
        )

    return script


def _echo(make: Callable[[np.random.Generator], Echo]) -> Callable[[Dice], Script]:
    def script(dice: Dice) -> Script:
        echo = make(dice.rng).quieter(dice.between(12.0, 30.0))
        return Script(wanted=Wanted.GOES_ON, part=SPEECH, ending=Ending.FINISHED, echo=echo)

    return script


def _double_talk(dice: Dice) -> Script:
    echo = echoes.wire(dice.rng).quieter(dice.between(12.0, 30.0))
    return replace(_over(dice, dice.one(INTERRUPTIONS), Wanted.YIELDS), echo=echo)


def _keys(dice: Dice) -> Script:
    keys = "".join(str(digit) for digit in dice.rng.integers(10, size=4)) + "#"
    return Script(wanted=Wanted.KEYED, cues=(Cue(Anchor.AGENT_DONE, 0.3, keys=keys),), part=ASKING)


def _silent(dice: Dice) -> Script:
    return Script(wanted=Wanted.SAYS_GOODBYE, ending=Ending.NEVER, limit_s=45.0)


def _monologue(dice: Dice) -> Script:
    whole = dice.say(STORY[0])
    for sentence in STORY[1:]:
        whole = whole.then(dice.between(0.1, 0.35), dice.say(sentence))
    return replace(_answer(dice, whole), limit_s=45.0)


def _lossy(dice: Dice) -> Script:
    return replace(_clean(dice), loss=0.05, jitter_s=0.04)


def _broken(fault: Fault) -> Callable[[Dice], Script]:
    return lambda dice: replace(_clean(dice), fault=fault, wanted=Wanted.RESCUES)


def _storm(dice: Dice) -> Script:
    """Interrupts the first words, and every answer."""
    cues = [Cue(Anchor.AGENT_BEGAN, dice.between(1.5, 3.0), dice.one(INTERRUPTIONS))]
    cues += [Cue(Anchor.AGENT_AGAIN, dice.between(0.3, 1.2), dice.one(INTERRUPTIONS)) for _ in range(4)]
    return Script(wanted=Wanted.YIELDS, cues=tuple(cues), part=SPEECH, limit_s=60.0)


_MAKERS: Final[tuple[Scenario, ...]] = (
    Scenario("clean turn", "clean turn", "response", _clean),
    Scenario("pause inside an utterance", "pause inside an utterance", "cut-off", _pause),
    Scenario("filler pause", "filler pause", "cut-off", _filled),
    Scenario("slow digits", "slow digits", "digits", _digits),
    Scenario("backchannel", "backchannel", "backchannel", _backchannel),
    Scenario("interruption, early", "real interruption", "yield", _interruption((1.2, 2.0))),
    Scenario("interruption, middle", "real interruption", "yield", _interruption((4.0, 6.0))),
    Scenario("interruption, late", "real interruption", "yield", _interruption((9.0, 11.0))),
    Scenario("backchannel that grows", "backchannel that grows", "yield", _growing),
    Scenario("cough", "cough, thump, keyboard", "noise", _noise(noises.cough)),
    Scenario("thump", "cough, thump, keyboard", "noise", _noise(noises.thump)),
    Scenario("keyboard", "cough, thump, keyboard", "noise", _noise(noises.keyboard)),
    Scenario("um", "cough, thump, keyboard", "noise", _um),
    *(
        Scenario(f"{name} at {snr} dB", "noise and babble", "in noise", _noisy(make, snr))
        for name, make in (("steady noise", noises.steady), ("babble", noises.babble))
        for snr in (20, 10, 5, 0)
    ),
    Scenario("talk to someone else", "talk to someone else", "aside", _aside(15.0, 0.4)),
    Scenario("talk to someone beside", "talk to someone else", "aside, near", _aside(8.0, 0.4)),
    Scenario("echo", "echo and double talk", "echo", _echo(echoes.wire)),
    Scenario("echo of a hybrid", "echo and double talk", "echo", _echo(echoes.hybrid)),
    Scenario("echo of a room", "echo and double talk", "room echo", _echo(echoes.room)),
    Scenario("double talk over echo", "echo and double talk", "yield", _double_talk),
    Scenario("keys", "DTMF", "keys", _keys),
    Scenario("silence", "silence", "dead air", _silent),
    Scenario("long monologue", "long monologue", "cut-off", _monologue),
    Scenario("loss and jitter", "loss and jitter", "loss", _lossy),
    Scenario("recogniser late", "STT late, empty or dead", "dead air", _broken(Fault.STT_LATE)),
    Scenario("recogniser empty", "STT late, empty or dead", "dead air", _broken(Fault.STT_EMPTY)),
    Scenario("recogniser dead", "STT late, empty or dead", "dead air", _broken(Fault.STT_DEAD)),
    Scenario("voice stalls", "TTS or LLM stall", "dead air", _broken(Fault.TTS_STALLS)),
    Scenario("agent stalls", "TTS or LLM stall", "dead air", _broken(Fault.LLM_STALLS)),
    Scenario("interrupt storm", "interrupt storm", "yield", _storm),
)
SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType({each.name: each for each in _MAKERS})
