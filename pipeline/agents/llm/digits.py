"""Numbers that a language-model agent asks for, by voice or by key, assembled by this code and not by the
model.

The model chooses when to ask, for which of the configured numbers, and in which words. The configuration says
how long a number is, which key ends it and who may see it. While a number is wanted, everything that the
caller says and keys is read here before the model gets it.

A masked number stays here: neither the model nor its operator sees the digits, so nothing that the model is
talked into can give them away. The model is told that the number was given, and tools get it from the `fixed`
fields of their configuration. Words with digits that do not make the number are withheld too.

Digits that the recogniser doubts (`UserSaid.doubtful`) are no part of a number, which stays wanted: the model
is told of the words and the doubt, or, under a mask, only that something else than the number was given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pipeline.agent import Expect, UserKeyed, UserSaid
from pipeline.agents.llm.table import LlmAsk
from pipeline.agents.script.position import SHOWN_OF
from pipeline.speech import Expected
from pipeline.text.fold import plain_words
from pipeline.text.lexicon import LEXICONS, lexicon
from pipeline.text.redaction import MASK
from pipeline.text.spoken_numbers import gathered, keyed_onto

TRIES: Final = 4
"""Answers without digits after which a number is given up: "one moment", "where does it stand?" and the like
leave the question, and its mask, as they are."""

SHORTEST: Final = 4
"""Fewest digits of a masked number that is concealed in the answers of tools."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A number that the caller has been asked for, and the part of it that was given."""

    ask: LlmAsk
    part: str = ""
    tries: int = TRIES

    @property
    def expect(self) -> Expect:
        """The answers expected next: the digits that are still missing."""
        ask = self.ask
        rest = Expected(
            kinds=("digits",),
            digits=max(0, ask.digits - len(self.part)),
            terminator=ask.terminator,
            key_timeout_s=ask.key_timeout_s,
        )
        return Expect(rest, masked=ask.mask)


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of an answer: what the model is told, the number if it is complete, what is still wanted,
    and what is said at once without the model ("" where the model answers)."""

    told: str
    value: str = ""
    wanted: Wanted | None = None
    say: str = ""


def read_answer(wanted: Wanted, event: UserSaid | UserKeyed, told: str, language: str) -> Reading:
    """Reads `event` as an answer for `wanted`; `told`: what the model would be told if no number were
    wanted."""
    ask = wanted.ask
    known = _known(wanted, event, language)
    if known and (not ask.digits or len(known) == ask.digits):
        return Reading(_given(ask, known, told), known)
    if known and known != wanted.part and not _is_doubtful(event):
        kept = f"[The caller gave a part of {ask.name}.]" if ask.mask else told
        return Reading(kept, wanted=replace(wanted, part=known), say=lexicon(language).go_on)
    wrong = _may_hold_digits(event, language)
    if ask.mask and wrong:
        told = f"[The caller gave something else than {ask.name}.]"
    if wanted.tries <= 1:
        return Reading(f"{told} [The caller has not given {ask.name}.]")
    part = "" if wrong else wanted.part
    return Reading(told, wanted=replace(wanted, tries=wanted.tries - 1, part=part))


def concealed(text: str, secrets: Iterable[str]) -> str:
    """Gives `text` with dots in the place of every secret number, however its digits are grouped."""
    for secret in secrets:
        if len(secret) >= SHORTEST:
            text = re.sub(r"[\s.-]?".join(secret), MASK, text)
    return text


def shown(asks: Mapping[str, LlmAsk], given: Mapping[str, str]) -> dict[str, str]:
    """Gives the numbers that were given, masked where configured: for records."""
    return {name: MASK if asks[name].mask else value for name, value in given.items()}


def _known(wanted: Wanted, event: UserSaid | UserKeyed, language: str) -> str:
    """The digits that are there after `event`, without those of doubtful words; "" where it brings none that
    fit."""
    ask = wanted.ask
    keys = event.keyed if isinstance(event, UserSaid) else event.digits
    known = keyed_onto(wanted.part, keys, ask.digits)
    if isinstance(event, UserKeyed):
        return known
    before = known or wanted.part
    if event.doubtful:
        return known if ask.digits else ""
    return gathered(plain_words(event.text), lexicon(language), before=before, wanted=ask.digits) or (
        known if ask.digits else ""
    )


def _is_doubtful(event: UserSaid | UserKeyed) -> bool:
    return isinstance(event, UserSaid) and event.doubtful and bool(event.text)


def _given(ask: LlmAsk, value: str, told: str) -> str:
    if not ask.mask:
        return f"{told} [{ask.name}: {value}]"
    end = f" It ends in {value[-4:]}." if len(value) >= SHOWN_OF else ""
    return f"[The caller gave {ask.name}.{end}]"


def _may_hold_digits(event: UserSaid | UserKeyed, language: str) -> bool:
    """Callers mix languages; of one whose words for digits are not known, every word may be one."""
    keys = event.keyed if isinstance(event, UserSaid) else event.digits
    if isinstance(event, UserKeyed) or any(key.isdecimal() for key in keys):
        return any(key.isdecimal() for key in keys)
    words = plain_words(event.text)
    known = lexicon(language) in LEXICONS.values()
    return any(gathered(words, each) for each in LEXICONS.values()) or (bool(words) and not known)
