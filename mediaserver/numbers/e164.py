"""Telephone numbers: E.164 with "+" inside the server, the carrier's format outside."""

from __future__ import annotations

import re
from collections.abc import Iterable

import phonenumbers
from phonenumbers import (
    NumberParseException,
    PhoneNumber,
    PhoneNumberFormat,
    PhoneNumberType,
    ValidationResult,
)

from mediaserver.errors import InvalidNumber

_SPELLING = re.compile(r"\+?\(?[0-9][0-9 ().\-/]{0,38}")
_FORMAT = re.compile(r"\+?\d{0,8}\{(?:e164|national)\}")


def normalise(text: str, region: str | None = None) -> str:
    """Normalises a number as people and programs write it to E.164 with "+".

    `region` is the company's country (ISO 3166, "SA"). With "+" or "00" the number is international. Without,
    in this order: digits that begin with the region's own country code; a number of the region (with or
    without its trunk prefix "0"); digits with any other country code. The first reading in a range that is in
    use counts, else the first whose length its country has: ranges are newer than tables of them. Raises
    `InvalidNumber`."""
    text = text.strip()
    if _SPELLING.fullmatch(text) is None:
        raise InvalidNumber("Invalid phone number format")
    digits = re.sub(r"\D", "", text)
    if text.startswith("+") or digits.startswith("00"):
        return _checked(_parse("+" + digits.removeprefix("00"), None))
    number = _guess(digits, region)
    if number is None:
        raise InvalidNumber("Invalid phone number format")
    return _e164(number)


def _guess(digits: str, region: str | None) -> PhoneNumber | None:
    """Returns the reading of `digits` in the order that `normalise` promises, None for none."""
    readings: list[PhoneNumber | None] = []
    with_code = region is not None and digits.startswith(calling_code(region))
    if region is not None and not with_code:
        readings.append(_parse(digits, region))
    if not digits.startswith("0"):
        readings.append(_parse("+" + digits, None))
    likely = [number for number in readings if number is not None and _has_its_length(number)]
    if with_code:  # a national number that begins like the country's code: only if it is in use
        readings.append(_parse(digits, region))
    in_use = (number for number in readings if number is not None and phonenumbers.is_valid_number(number))
    return next(in_use, next(iter(likely), None))


def in_use(number: str, region: str | None = None) -> bool:
    """Whether a number, E.164 or as it is written in `region`, is in a range that is in use."""
    parsed = _parse(number, region)
    return parsed is not None and phonenumbers.is_valid_number(parsed)


def _has_its_length(number: PhoneNumber) -> bool:
    """Whether the number's country has numbers of that length; a number without its area code does not
    count."""
    return bool(phonenumbers.is_possible_number_with_reason(number) == ValidationResult.IS_POSSIBLE)


def _parse(text: str, region: str | None) -> PhoneNumber | None:
    try:
        return phonenumbers.parse(text, region)
    except NumberParseException:
        return None


def _checked(number: PhoneNumber | None) -> str:
    # A number written out in full is accepted: numbering plans grow faster than the tables of them.
    if number is None or not _has_its_length(number):
        raise InvalidNumber("Invalid phone number format")
    return _e164(number)


def _e164(number: PhoneNumber) -> str:
    return str(phonenumbers.format_number(number, PhoneNumberFormat.E164))


def spellings(number: str, region: str | None = None) -> tuple[str, ...]:
    """Returns the ways in which programs write an E.164 `number`, E.164 first; without its country only where
    that is `region`."""
    digits = number.removeprefix("+")
    parsed = _parse(number, None)
    national: tuple[str, ...] = ()
    if parsed is not None and region is not None and str(parsed.country_code) == calling_code(region):
        short = phonenumbers.national_significant_number(parsed)
        national = (short, f"0{short}")
    return tuple(dict.fromkeys((number, digits, f"00{digits}", *national)))


def calling_code(region: str) -> str:
    """Returns the country code of a region: "SA" to "966"."""
    return str(phonenumbers.country_code_for_region(region))


def country_of(number: str) -> str:
    """Returns the country (ISO 3166) of an E.164 number: of "+14155550100" "US"."""
    parsed = _parse(number, None)
    region = phonenumbers.region_code_for_number(parsed) if parsed is not None else None
    if region is None and parsed is not None and parsed.country_code is not None:
        region = phonenumbers.region_code_for_country_code(parsed.country_code)
    return region or ""


def check_number_format(value: str) -> str:
    """Returns a trunk's `number_format`. Raises ValueError unless it is digits around {e164} or
    {national}."""
    if _FORMAT.fullmatch(value) is None:
        raise ValueError(
            'must be "+", digits, and then {e164} or {national}, such as "+{e164}" or "0{national}"'
        )
    return value


def format_for_trunk(number: str, number_format: str) -> str:
    """Returns an E.164 `number` ("+" and digits) in the carrier's format. Raises `InvalidNumber`."""
    parsed = _parse(number, None)
    if parsed is None:
        raise InvalidNumber("Invalid phone number format")
    national = phonenumbers.national_significant_number(parsed)
    return number_format.format(e164=f"{parsed.country_code}{national}", national=national)


def accepted(dial_number: str, accepts: str) -> bool:
    """Whether the trunk's pattern `accepts` matches all of a formatted number."""
    return re.fullmatch(accepts, dial_number) is not None


def may_dial(number: str, reach: Iterable[str]) -> bool:
    """Whether an E.164 `number` is in a company's `reach`: prefixes in digits, and countries; an empty
    `reach` has none.

    A country is its own numbers only: calling codes are shared (+1 is twenty countries, some of which pay a
    share of a call's cost to whoever provoked it). Premium-rate numbers are dialled by prefix only."""
    return any(
        number.removeprefix("+").startswith(each) if each.isdecimal() else _is_of(number, each)
        for each in reach
    )


def _is_of(number: str, region: str) -> bool:
    parsed = _parse(number, None)
    if parsed is None or parsed.country_code != phonenumbers.country_code_for_region(region):
        return False
    if phonenumbers.is_valid_number(parsed):
        costly = phonenumbers.number_type(parsed) == PhoneNumberType.PREMIUM_RATE
        return phonenumbers.is_valid_number_for_region(parsed, region) and not costly
    return bool(
        phonenumbers.region_code_for_country_code(parsed.country_code) == region
    )  # a number that the tables do not have yet
