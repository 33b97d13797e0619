"""What of a conversation is no business of its records: numbers and addresses, said and written."""

from __future__ import annotations

import pytest

from mediaserver.calls.redaction import MutedSpan, Redactor
from pipeline.transcript import Role, TimedWord, TranscriptEntry

ALL = ("card", "iban", "email", "phone", "national_id")
US = Redactor(ALL, country="US")


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("My card is 4111 1111 1111 1111, thanks.", "My card is [card], thanks."),
        ("It's 4111111111111111.", "It's [card]."),
        ("four one one one one one one one one one one one one one one one", "[card]"),
        ("it is five five double five" + " five" * 8 + " four" * 4, "it is [card]"),
        ("378282246310005 is the Amex", "[card] is the Amex"),
        ("4111 1111 1111 1112 is none", "4111 1111 1111 1112 is none"),
        ("pay to DE89 3704 0044 0532 0130 00 please", "pay to [iban] please"),
        ("GB82WEST12345698765432", "[iban]"),
        ("GB82 WEST 1234 5698 7654 33 is none", "GB82 WEST 1234 5698 7654 33 is none"),
        ("write to john.doe+x@mail.example.com today", "write to [email] today"),
        ("john dot doe at example dot com", "[email]"),
        ("call me on (415) 555-2671 or +44 20 7946 0958", "call me on [phone] or [phone]"),
        ("my number is four one five five five five two six seven one", "my number is [phone]"),
        ("my social is 536-90-4399", "my social is [national_id]"),
        ("order 1234567 of the 3rd of May 2026 at 3:30", "order 1234567 of the 3rd of May 2026 at 3:30"),
        ("I have two children and twenty one cats", "I have two children and twenty one cats"),
        ("", ""),
    ],
)  # fmt: skip
def test_what_is_found(said: str, kept: str) -> None:
    assert US.text(said) == kept


@pytest.mark.parametrize(
    ("country", "said", "kept"),
    [
        ("SA", "1000000008", "[national_id]"),
        ("SA", "1000000007", "1000000007"),
        ("NL", "BSN 111222333", "BSN [national_id]"),
        ("FI", "131052-308T", "[national_id]"),
        ("IT", "RCCMNL83S18D969H", "[national_id]"),
        ("", "536-90-4399", "536-90-4399"),
    ],
)
def test_national_ids_are_those_of_the_country(country: str, said: str, kept: str) -> None:
    assert Redactor(["national_id"], country=country).text(said) == kept


def test_arabic_digits_and_words() -> None:
    redactor = Redactor(ALL, country="SA", language="ar")
    assert redactor.text("بطاقتي ٤١١١ ١١١١ ١١١١ ١١١١") == "بطاقتي [card]"
    assert redactor.text("اربعة" + " واحد" * 15) == "[card]"


def test_only_what_is_asked_for() -> None:
    said = "4111 1111 1111 1111, john@example.com"
    assert Redactor(["email"]).text(said) == "4111 1111 1111 1111, [email]"
    assert Redactor([]).text(said) == said


def test_a_number_dictated_in_pieces_is_one_number() -> None:
    pieces = ["It's 4111 1111", "then 1111", "1111", "and that's it"]
    assert US.texts(pieces)[0] == "It's [card]"
    assert "1111" not in " ".join(US.texts(["It's 4111 1111", "1111", "1111. Thanks"]))


def test_values_of_json() -> None:
    value = {"answers": {"mail": "a@b.example"}, "turns": 3, "notes": ["4111 1111 1111 1111"]}
    assert US.value(value) == {"answers": {"mail": "[email]"}, "turns": 3, "notes": ["[card]"]}


def entry(text: str, *, start_ms: int, timed: bool = True, words: str = "") -> TranscriptEntry:
    spoken = (words or text).split()
    times = tuple(TimedWord(w, start_ms + 100 * n, start_ms + 100 * n + 90) for n, w in enumerate(spoken))
    end_ms = start_ms + 100 * len(spoken)
    return TranscriptEntry(Role.CALLER, text, start_ms, end_ms, words=times if timed else ())


def test_the_words_of_a_number_are_marked_and_silent() -> None:
    said = entry("my card 4111 1111 1111 1111 ok", start_ms=1000)
    [kept] = US.entries([said])
    assert (kept.text, [word.text for word in kept.words]) == (
        "my card [card] ok",
        ["my", "card", "[…]", "[…]", "[…]", "[…]", "ok"],
    )
    assert US.silences([said]) == [
        MutedSpan(Role.CALLER, 1000 + 100 * place, 1090 + 100 * place) for place in (2, 3, 4, 5)
    ]


@pytest.mark.parametrize("text", ["My card is 4111", "I see"])
def test_words_that_nobody_heard_are_not_kept(text: str) -> None:
    """A number may begin in what was heard and go on in what was not."""
    said = TranscriptEntry(Role.AGENT, text, 0, 900, interrupted=True, unheard="1111 1111 1111")
    [kept] = US.entries([said])
    assert (kept.text, kept.unheard) == (text, "")


def test_words_that_are_spelt_otherwise_than_the_text() -> None:
    said = entry("card 4111111111111111", start_ms=0, words="card four one" + " one" * 14)
    assert len(US.silences([said])) == 16
    assert "one" not in [word.text for word in US.entries([said])[0].words]


def test_without_times_of_words_the_whole_line_is_silent() -> None:
    said = entry("4111 1111 1111 1111", start_ms=500, timed=False)
    assert US.silences([said]) == [MutedSpan(Role.CALLER, 500, said.end_ms)]
