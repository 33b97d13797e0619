"""Lists of words by their meaning for turn-taking, by language: "mm-hm" is a backchannel, "stop" asks for the
floor, "my number is" is unfinished.

English and Arabic are built in. An agent adds words to a list by name (`word_lists(language, extra)`), for a
trade, a dialect or a further language. Matching is on `plain` words, so that case, punctuation, Arabic vowel
signs and the spellings of alef do not matter."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum, auto
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from pipeline.errors import SettingsRefused

_NO_DIGITS: Final[Mapping[str, str]] = MappingProxyType({})
_LETTERS: Final = str.maketrans("أإآٱىة", "اااايه", "ـ'’")


@dataclass(frozen=True, slots=True)
class WordLists:
    """The lists of one language; all entries are `plain`, and may be phrases unless stated otherwise.

    Over the agent: `backchannels`: words of a listener ("mm-hm"); `partings`: answers to a farewell; `stops`:
    words that ask for the floor; `fillers`: hesitations ("um"); `light`: single words without content.

    At the end of a turn: `dangling`: last words after which more follows; `unending`: those after which more
    follows whatever the prosody; `openers`: beginnings of an answer that is still to come; `yes_no`: complete
    answers to a yes-or-no question; `closing`: last words of a turn; `wanting`: last words after which more
    mostly follows ("I need to change"); `asking`: first words of a question; `conditions`: first words of a
    conditional clause; `finished`: complete endings although their last word is in `dangling` ("turn it
    on"); `stranded`: words in `dangling` that may end a clause that began with one of `relatives` ("what I
    asked for"); `orders`: requests that are whole by themselves ("stop"); `imperatives`: first words of a
    request ("let me talk to a person").

    `numbers`: number words that are no digits; `streets`: words in names of streets. `digits`: digit by
    single word; `homophones`: the same for words that are digits only where digits are expected."""

    backchannels: frozenset[str] = frozenset()
    partings: frozenset[str] = frozenset()
    stops: frozenset[str] = frozenset()
    fillers: frozenset[str] = frozenset()
    light: frozenset[str] = frozenset()
    dangling: frozenset[str] = frozenset()
    unending: frozenset[str] = frozenset()
    openers: frozenset[str] = frozenset()
    yes_no: frozenset[str] = frozenset()
    closing: frozenset[str] = frozenset()
    wanting: frozenset[str] = frozenset()
    asking: frozenset[str] = frozenset()
    conditions: frozenset[str] = frozenset()
    stranded: frozenset[str] = frozenset()
    relatives: frozenset[str] = frozenset()
    finished: frozenset[str] = frozenset()
    orders: frozenset[str] = frozenset()
    imperatives: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    streets: frozenset[str] = frozenset()
    digits: Mapping[str, str] = field(default_factory=lambda: _NO_DIGITS)
    homophones: Mapping[str, str] = field(default_factory=lambda: _NO_DIGITS)


EXTENSIBLE: Final = tuple(
    each.name for each in fields(WordLists) if each.name not in ("digits", "homophones")
)
"""The lists that an agent's settings may add to."""


class OverlapKind(Enum):
    """The meaning of the caller's words over the agent."""

    NOTHING = auto()  # no words: a cough, noise, a hesitation
    BACKCHANNEL = auto()  # "mm-hm": the agent should go on
    STOP = auto()  # "wait": the caller asks for the floor
    CONTENT = auto()  # other words


@dataclass(frozen=True, slots=True)
class Overlap:
    """The meaning of words said over the agent. `content_words`: how many of them carry content;
    `light_words`: how many belong to a sentence without carrying any ("so", "it is")."""

    kind: OverlapKind
    content_words: int = 0
    light_words: int = 0


def plain(text: str) -> str:
    """`text` as the lists have it: lower case, words and single spaces only, Arabic without vowel signs and
    with one alef. Hyphens separate ("mm-hm" is "mm hm")."""
    kept = []
    for char in unicodedata.normalize("NFKC", text).casefold().translate(_LETTERS):
        category = unicodedata.category(char)
        if category == "Mn":  # a vowel sign
            continue
        kept.append(char if category[0] in "LN" else " ")
    return " ".join("".join(kept).split())


def _numbered(words: str) -> Mapping[str, str]:
    """Digit words in the order 0 to 9; spellings of one digit are joined by "/"."""
    return MappingProxyType(
        {
            plain(word): str(digit)
            for digit, spelled in enumerate(words.split())
            for word in spelled.split("/")
        }
    )


def _set(words: str) -> frozenset[str]:
    """Single words."""
    return frozenset(plain(word) for word in words.split())


def _phrases(phrases: str) -> frozenset[str]:
    """Phrases divided by commas."""
    return frozenset(plain(phrase) for phrase in phrases.split(","))


_ENGLISH: Final = WordLists(
    backchannels=_phrases("""
        mm hm, mhm, mmhm, mm, mmm, m, hm, hmm, uh huh, uhuh, aha, ah, oh, oh okay, i see, right, okay, ok,
        kay, yeah, yep, yup, yes, ya, sure, true, exactly, of course, got it, gotcha, alright, all right,
        fine, good, great, cool, nice, perfect, go on, go ahead, i know, i understand, understood, makes
        sense, thats right, thank you, thanks, oh really, really, wow, fair enough, absolutely, definitely,
        no problem
    """),
    partings=_phrases("""
        bye, bye bye, bye now, goodbye, good bye, good night, good day, cheers, ciao, see you, see ya, see
        you then, see you later, see you soon, see you there, see you tomorrow, see you on, talk to you
        later, talk to you soon, talk soon, speak soon, speak to you soon, until then, so long, take care,
        all the best, thanks, thank you, thanks so much, thank you so much, thanks very much, thank you
        very much, very much, thanks a lot, thanks a million, thanks again, for calling, for your call,
        for your help, for your time, for everything, for that, you too, same to you, and you, likewise,
        you have a good, you have a nice, you have a great, you have a lovely, have a good, have a nice,
        have a great, have a lovely, have a good one, day, evening, weekend, night, rest of your, no
        thanks, no thank you, no bye, no goodbye, thats all, that is all, no thats all, thats it, that is
        it, no thats it, no that is all, nothing else, no nothing else, no im fine, no im good, thats
        fine, thats great, thats perfect, sounds good, will do, then, now, dear, much appreciated, i
        appreciate it, appreciate it, youre welcome, you are welcome, my pleasure, no worries, okay then,
        all right then
    """),
    stops=_phrases("""
        stop, wait, hold on, hang on, no, nope, excuse me, sorry, pardon, one moment, one second, just a
        moment, just a second, wait a minute, hold up, listen, hello, hey, quiet, be quiet, shut up, enough,
        cancel, help, let me, not interested, thats wrong, thats not right, i have a question, can i, may i,
        repeat that, say that again, what, who, operator, human, agent, representative, never mind, forget
        it, but
    """),
    fillers=_set("um uh er erm eh hmm hm mm mmm ah uhm umm uhh huh"),
    light=_set("""
        a an the and or so of to for from in on at with by it is im i its that this my your just like well
    """),
    dangling=_set("""
        a an the and or but so because if of to for from in on at with by my your his her our their its is
        are was were will would can could i we that which um uh er erm hmm like about double triple
    """),
    unending=_set("a an the my your our their and but or because if of"),
    openers=_phrases("""
        my number is, my name is, it is, it's, let me see, let me think, hold on, wait, one moment, well,
        just a second, i think, i would like, i want, yes but, no but, the number is, the code is, my code
        is, the name is, thats, that is, i would like to, i want to, id like, id like to, can you, could
        you, you know, i mean, actually, the first is, my address is, my email is, i need
    """),
    yes_no=_set("yes yeah yep yup sure correct right no nope okay ok"),
    closing=_phrases("""
        please, thanks, thank you, goodbye, bye, thats all, thats it, thats right, that is all, that is it,
        fine, great, perfect, thats correct, that is correct, cheers, too, anything else, nothing else,
        instead, already, anymore, no thank you, thank you very much
    """),
    wanting=_set("""
        need want like have know tell say think send give get make take see find buy book change cancel ask
        bring put keep let call speak talk look looking calling wondering hoping trying going about into
        onto over under between before after until since than when where while what who how whether not very
        really quite some any every each another well okay then there also just only even as be been being
        do does did has had may might must should shall am anything
    """),
    asking=_set("""
        what when where who why how which can could would will do does did is are was has may should
    """),
    conditions=_set("if because unless although since whenever once after before while"),
    stranded=_set("for about with of from at on in like to"),
    relatives=_set("what who whom whose which where"),
    finished=_phrases("""
        it on, it in, it is, them on, them in, that on, me in, about that, for that, of that, with that,
        like that, do that, to that, after that, know that, want that, have that, i am, you are
    """),
    orders=_phrases("""
        stop, stop it, stop that, stop please, cancel, cancel that, cancel it, help, quiet, be quiet, shut up,
        enough, thats enough, never mind, forget it, forget that, repeat that, repeat, again, say that again,
        operator, human, agent, representative, thats wrong, thats not right, not interested, what, who, why,
        go back, start over, skip it, skip that, hang up, leave me alone, go away, talk to a person,
        let me talk to a person, let me speak to a person, let me talk to someone, let me speak to someone,
        let me talk to an agent, let me speak to an agent, speak to an agent, speak to a person
    """),
    imperatives=_set("""
        let give tell send cancel stop call put transfer connect repeat say show take book change check speak
        help forget get leave remove add please make turn bring move keep find read start
    """),
    numbers=_set("""
        ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty
        fifty sixty seventy eighty ninety hundred thousand million dozen half double triple
    """),
    streets=_set("""
        street avenue road lane drive close hill way square court place park terrace gardens crescent
        boulevard building house
    """),
    digits=_numbered("zero/oh/nought one two three four five six seven eight nine"),
    homophones=MappingProxyType({"o": "0", "to": "2", "too": "2", "for": "4"}),
)  # fmt: skip
_ARABIC: Final = WordLists(
    backchannels=_phrases("""
        نعم, ايوه, ايوا, اه, اها, آه, هم, همم, امم, مم, طيب, تمام, حسنا, صحيح, صح, اوكي, اوك, ماشي, اكيد,
        فهمت, مفهوم, واضح, جيد, ممتاز, حاضر, ان شاء الله, شكرا, والله, اي نعم, بالضبط, طبعا, زين, كمل, تفضل,
        الحمد لله
    """),
    partings=_phrases("""
        مع السلامة, مع الف سلامة, السلامة, سلام, السلام عليكم, وعليكم السلام, الى اللقاء, وداعا, في امان
        الله, الله معك, الله يسلمك, تصبح على خير, يوم سعيد, يومك سعيد, نهارك سعيد, باي, شكرا, شكرا لك,
        شكرا جزيلا, شكرا جزيلا لك, الف شكر, مشكور, مشكورة, تسلم, تسلمين, يعطيك العافية, الله يعطيك
        العافية, العفو, عفوا, وانت كذلك, وانت ايضا, لا شكرا, لا شكرا لك, خلاص شكرا, خلاص مع السلامة, هذا
        كل شيء, لا هذا كل شيء, نلتقي, نراك
    """),
    stops=_phrases("""
        توقف, قف, وقف, انتظر, استنى, استنا, لحظة, دقيقة, ثانية, لا, كلا, بس, خلاص, اسكت, عفوا, المعذرة, لو
        سمحت, من فضلك, اسمع, اسمعني, مهلا, الو, ماذا, ايش, شو, مين, من معي, عندي سؤال, لحظة واحدة, دقيقة
        واحدة, غير مهتم, مش مهتم, ما ابغى, اعد, كرر, موظف, لكن
    """),
    fillers=_set("اه آه امم همم مم هم يعني ااه اممم"),
    light=_set("و او ثم ان من في على الى عن مع هذا هذه ذلك انا هو هي ما يا"),
    dangling=_set("""
        و او أو ثم لكن بس لان لأن اذا إذا من في على الى إلى عن مع ان أن انا أنا هو هي يعني اه آه امم هذا هذه
        الذي التي
    """),
    unending=_set("و او أو ثم في من على الى إلى عن ان أن لان لأن الذي التي"),
    openers=_phrases("""
        رقمي, رقمي هو, اسمي, اسمي هو, انا اسمي, لحظة, دقيقة, انتظر, اريد, نعم لكن, لا لكن, الرقم, الرقم هو,
        ابغى, عايز, بدي, اريد ان, ممكن, عنواني, عنواني هو, الاسم, الرمز, الرمز هو
    """),
    yes_no=_set("نعم ايوه أيوه اي أجل لا كلا طيب صحيح تمام"),
    closing=_phrases("""
        شكرا, من فضلك, لو سمحت, مع السلامة, فقط, هذا كل شيء, بس كذا, خلاص, تمام, غدا, اليوم, بكرا
    """),
    wanting=_set("""
        اريد ابغى عايز بدي عندي كان كنت هل متى اين كيف كم ماذا قبل بعد حتى كل بعض غير ليس لم لن سوف قد
    """),
    conditions=_set("اذا لو لان بعد قبل عندما لما"),
    numbers=_set("""
        عشرة عشر عشرون عشرين ثلاثون ثلاثين اربعون اربعين خمسون خمسين ستون سبعون ثمانون تسعون مئة مائة الف
    """),
    streets=_set("شارع طريق بناية حي ساحة"),
    asking=_set("هل متى اين كيف كم ماذا لماذا من ما ايش شو وين ليش ممكن"),
    digits=_numbered(
        "صفر واحد/واحدة اثنان/اثنين/اتنين ثلاثة/تلاتة/ثلاث اربعة/أربعة/اربع "
        "خمسة/خمس ستة/ست سبعة/سبع ثمانية/تمانية/ثمان تسعة/تسع"
    ),
)  # fmt: skip
_LANGUAGES: Final[Mapping[str, WordLists]] = MappingProxyType({"en": _ENGLISH, "ar": _ARABIC})
_NONE: Final = WordLists()


def word_lists(language: str, extra: Mapping[str, Sequence[str]] | None = None) -> WordLists:
    """Gives the lists of `language` ("en", "en-GB", "ar"; empty ones for others) with the entries of `extra`,
    by the name of the list. Raises `SettingsRefused` for an unknown list."""
    name = language.replace("_", "-").split("-")[0].lower()
    if not extra:
        return _LANGUAGES.get(name, _NONE)
    unknown = sorted(set(extra) - set(EXTENSIBLE))
    if unknown:
        raise SettingsRefused("words", [(name, f"not one of {', '.join(EXTENSIBLE)}") for name in unknown])
    return _extended(name, tuple((key, tuple(phrases)) for key, phrases in extra.items()))


@lru_cache(maxsize=256)
def _extended(language: str, extra: tuple[tuple[str, tuple[str, ...]], ...]) -> WordLists:
    """The lists with an agent's entries; cached, since every pause of the agent's calls needs them."""
    lists = _LANGUAGES.get(language, _NONE)
    return replace(lists, **{key: getattr(lists, key) | frozenset(map(plain, more)) for key, more in extra})


def judge_overlap(text: str, language: str, lists: WordLists | None = None) -> Overlap:
    """Gives the meaning of `text`, said over the agent: STOP for a stop word anywhere, else CONTENT for any
    content."""
    lists = word_lists(language) if lists is None else lists
    backchannel, content, light = False, 0, 0
    for phrase, kind in _phrases_of(plain(text).split(), lists):
        if kind is OverlapKind.STOP:
            return Overlap(OverlapKind.STOP, _content(text, lists))
        backchannel = backchannel or kind is OverlapKind.BACKCHANNEL
        if kind is OverlapKind.CONTENT:
            light += phrase in lists.light
            content += phrase not in lists.light
    if content:
        return Overlap(OverlapKind.CONTENT, content, light)
    return Overlap(OverlapKind.BACKCHANNEL if backchannel else OverlapKind.NOTHING, 0, light)


_ANSWERS_TOO: Final = _phrases("""
    thats fine, thats great, thats perfect, sounds good, will do, no thanks, no thank you, no im fine,
    no im good, okay then, all right then, no worries, لا شكرا, لا شكرا لك, خلاص شكرا
""")
"""Partings that may also answer a question."""


def judge_farewell(
    text: str, language: str, lists: WordLists | None = None, *, missed: bool = False, ended: bool = True
) -> Overlap:
    """Gives the meaning of `text`, said over a farewell: words of parting, and their beginnings, are a
    BACKCHANNEL. `missed`: the caller had not answered before, so that "yes" or "sounds good" is CONTENT.
    `ended`: the caller has stopped speaking; otherwise "no" may become "no, that's all"."""
    lists = word_lists(language) if lists is None else lists
    wanting_nothing = lists.partings - _ANSWERS_TOO if missed else lists.partings | lists.backchannels
    return _judge_parting(text, language, replace(lists, backchannels=wanting_nothing), ended=ended)


def _judge_parting(text: str, language: str, lists: WordLists, *, ended: bool = True) -> Overlap:
    """The meaning of `text` over a farewell; `lists.backchannels` has the words that ask for nothing."""
    meant = judge_overlap(text, language, lists)
    words, begun = plain(text).split(), _beginnings(lists.partings & lists.backchannels)
    for size in range(1, len(words) + 1) if meant.kind in (OverlapKind.STOP, OverlapKind.CONTENT) else ():
        last = " ".join(words[-size:])
        if last not in begun or (ended and last in lists.stops):
            continue
        before = judge_overlap(" ".join(words[:-size]), language, lists)
        if before.kind in (OverlapKind.NOTHING, OverlapKind.BACKCHANNEL):
            return Overlap(OverlapKind.BACKCHANNEL)
    return meant


@lru_cache(maxsize=64)
def _beginnings(phrases: frozenset[str]) -> frozenset[str]:
    words = [phrase.split() for phrase in phrases]
    return frozenset(" ".join(each[:size]) for each in words for size in range(1, len(each) + 1))


def is_parting(text: str, language: str) -> bool:
    """Whether `text` has only words of parting, or no words."""
    lists = word_lists(language)
    meant = _judge_parting(text, language, replace(lists, backchannels=lists.partings))
    return meant.kind in (OverlapKind.NOTHING, OverlapKind.BACKCHANNEL)


def _content(text: str, lists: WordLists) -> int:
    kinds = _phrases_of(plain(text).split(), lists)
    return sum(kind is OverlapKind.CONTENT and phrase not in lists.light for phrase, kind in kinds)


def _phrases_of(words: list[str], lists: WordLists) -> Iterator[tuple[str, OverlapKind]]:
    """The longest listed phrases, in order, and each other word by itself."""
    longest = _longest(lists)
    at = 0
    while at < len(words):
        for size in range(min(longest, len(words) - at), 0, -1):
            phrase = " ".join(words[at : at + size])
            kind = _kind(phrase, lists)
            if kind is not None:
                break
        else:
            phrase, kind, size = words[at], OverlapKind.CONTENT, 1
        yield phrase, kind
        at += size


def _kind(phrase: str, lists: WordLists) -> OverlapKind | None:
    if phrase in lists.stops:
        return OverlapKind.STOP
    if phrase in lists.backchannels:
        return OverlapKind.BACKCHANNEL
    return OverlapKind.NOTHING if phrase in lists.fillers else None


@lru_cache(maxsize=64)
def _longest_of(phrases: frozenset[str]) -> int:
    return max((phrase.count(" ") + 1 for phrase in phrases), default=1)


def _longest(lists: WordLists) -> int:
    return max(_longest_of(lists.stops), _longest_of(lists.backchannels))
