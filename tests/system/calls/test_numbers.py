"""Telephone numbers: every spelling of one number is one number, and nobody abroad is called by mistake."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediaserver.errors import InvalidNumber
from mediaserver.numbers.e164 import accepted, calling_code, format_for_trunk, may_dial, normalise


@pytest.mark.parametrize(
    "text",
    [
        "+966512345678",
        "966512345678",
        "0512345678",
        "512345678",
        "00966512345678",
        "+966 51 234-5678",
        " 0512345678 ",
    ],
)
def test_every_spelling_of_a_saudi_number_is_one_number(text: str) -> None:
    assert normalise(text, "SA") == "+966512345678"


@pytest.mark.parametrize(
    ("text", "region", "number"),
    [
        ("+14155550100", "SA", "+14155550100"),
        ("14155550100", "SA", "+14155550100"),
        ("4155550100", "US", "+14155550100"),
        ("(415) 555-0100", "US", "+14155550100"),
        ("+442079460958", None, "+442079460958"),
        ("442079460958", None, "+442079460958"),
        ("020 7946 0958", "GB", "+442079460958"),
        ("4915123456789", "US", "+4915123456789"),
        # Digits with the company's own country code are that, even where they could be a number inside it.
        ("4930123456", "DE", "+4930123456"),
        ("0612345678", "FR", "+33612345678"),
        ("966112345678", "SA", "+966112345678"),
        # Ranges that libphonenumber does not know yet, by country and length.
        ("966520024499", "SA", "+966520024499"),
        ("966520024499", None, "+966520024499"),
        ("966520024499", "US", "+966520024499"),
        ("0520024499", "SA", "+966520024499"),
        ("520024499", "SA", "+966520024499"),
    ],
)
def test_numbers_of_other_countries(text: str, region: str | None, number: str) -> None:
    assert normalise(text, region) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "abc",
        "+",
        "00",
        "12",
        "+12",
        "0512345678901234567",
        "+0512345678",
        "05123x5678",
        "966512345678;ext=1",
        "0512345678\r\nVia: x",
        "٠٥١٢٣٤٥٦٧٨",
        "+966++512345678",
        "sip:0512345678",
        "1-800-FLOWERS",
        "9" * 60,
        "9665200244",
        "96652002449912",
    ],
)
def test_what_is_no_number_is_refused_in_the_words_of_the_api(text: str) -> None:
    with pytest.raises(InvalidNumber) as caught:
        normalise(text, "SA")
    assert str(caught.value) == "Invalid phone number format"


def test_a_national_number_needs_a_country() -> None:
    with pytest.raises(InvalidNumber):
        normalise("0512345678")


@given(st.text(max_size=30) | st.from_regex(r"\+?[0-9 ()-]{1,25}", fullmatch=True))
def test_any_text_is_a_number_or_refused_and_a_number_stays_itself(text: str) -> None:
    try:
        number = normalise(text, "SA")
    except InvalidNumber:
        return
    assert number.startswith("+")
    assert number[1:].isascii()
    assert number[1:].isdigit()
    assert normalise(number, "US") == number


@pytest.mark.parametrize(
    ("number_format", "sent"),
    [
        ("+{e164}", "+966512345678"),
        ("{e164}", "966512345678"),
        ("0{national}", "0512345678"),
        ("00{e164}", "00966512345678"),
        ("9{national}", "9512345678"),
    ],
)
def test_a_carrier_is_sent_its_own_spelling(number_format: str, sent: str) -> None:
    assert format_for_trunk("+966512345678", number_format) == sent


def test_an_italian_number_keeps_its_zero() -> None:
    assert format_for_trunk("+390612345678", "00{e164}") == "00390612345678"
    assert format_for_trunk("+390612345678", "{national}") == "0612345678"


def test_a_number_must_match_the_trunk_as_a_whole() -> None:
    assert accepted("+966512345678", r"^\+9665\d{8}$")
    assert accepted("+966512345678", r"\+9665\d{8}")
    assert not accepted("+966112345678", r"^\+9665\d{8}$")
    assert not accepted("+9665123456789", r"\+9665\d{8}")
    assert not accepted("+966512345678\n", r"^\+9665\d{8}$")


def test_only_the_companys_prefixes_are_dialled() -> None:
    assert may_dial("+966512345678", ["966", "1415"])
    assert may_dial("+14155550100", ["966", "1415"])
    assert not may_dial("+14165550100", ["966", "1415"])
    assert not may_dial("+9665", [])


@pytest.mark.parametrize(
    ("number", "countries"),
    [
        ("+14155550100", {"US"}),
        ("+12045551234", {"CA"}),
        ("+18765551234", {"JM"}),  # the same calling code, another country
        ("+18005551234", {"US", "CA", "JM"}),  # free to call from all of them
        ("+19005550199", set()),  # premium rate
        ("+449098790000", set()),
        ("+447624300000", set()),  # the Isle of Man
        ("+442079460000", {"GB"}),
        ("+966512345678", {"SA"}),
        ("+15555550100", {"US"}),  # in no table
    ],
)
def test_a_country_is_its_own_numbers(number: str, countries: set[str]) -> None:
    assert {each for each in ("US", "CA", "JM", "GB", "SA") if may_dial(number, [each])} == countries


def test_countries_have_calling_codes() -> None:
    assert (calling_code("SA"), calling_code("US"), calling_code("DE")) == ("966", "1", "49")
