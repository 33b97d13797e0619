"""What SIP says about a call: told to agents as variables, to webhooks and the record; and what is sent."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from mediaserver.errors import InvalidRequest
from mediaserver.settings import TrunkSettings
from sip.call import Call
from sip.errors import LocalError
from sip.extra_headers import check_headers
from sip.identity import CallerIdentity, readable, told, user_to_user

HEADERS_LIMIT: Final = 20
"""The most header fields of a request for a call."""

VALUE_LIMIT: Final = 2048
"""The most characters of a header field that is sent."""

IDENTITY_HEADERS: Final = frozenset(
    {"p-asserted-identity", "p-preferred-identity", "remote-party-id", "privacy", "diversion", "history-info"}
)
"""Header fields that say who calls: the trunk's `identity` sends them, never a request or a variable."""


def received(call: Call, trunk: TrunkSettings) -> dict[str, Any]:
    """Returns what the INVITE of an inbound call says, for its record and webhooks. Fields that it lacks are
    left out, `headers` excepted: those of the trunk's `pass_headers` and `headers` that are there."""
    caller = call.caller or CallerIdentity(number=call.remote_number)
    said = {
        "displayName": caller.display_name,
        "asserted": caller.asserted,
        "withheld": caller.withheld,
        "verstat": caller.verstat,
        "diversions": [{"number": each.number, "reason": each.reason} for each in caller.diversions],
        "userToUser": user_to_user(call.headers),
    }
    names = dict.fromkeys((*trunk.pass_headers, *trunk.headers))
    headers = {name: value for name in names if (value := told(call.headers, name))}
    return {name: value for name, value in said.items() if value} | {"headers": headers}


def variables(call: Call, trunk: TrunkSettings) -> dict[str, str]:
    """Returns the variables that an inbound call brings its agent: each chosen header field, "" where the
    INVITE lacks it, and with `caller_variables` who calls."""
    brought = {name: told(call.headers, name) for name in trunk.pass_headers}
    brought |= {variable: told(call.headers, name) for name, variable in trunk.headers.items()}
    if not trunk.caller_variables:
        return brought
    caller = call.caller or CallerIdentity(number=call.remote_number)
    return brought | {
        "caller_number": "" if caller.withheld else readable(caller.number),
        "caller_name": caller.display_name,
        "called_number": readable(call.local_number),
        "diverted_from": readable(caller.diversions[0].number) if caller.diversions else "",
        "verstat": caller.verstat,
        "user_to_user": user_to_user(call.headers),
    }


def to_send(
    chosen: Mapping[str, str], variables: Mapping[str, str], asked: Mapping[str, str]
) -> dict[str, str]:
    """Returns the header fields of an INVITE: those that were `asked` for, and those of `chosen` whose
    variable is set, without control characters."""
    filled = {
        name: readable(variables[variable])[:VALUE_LIMIT]
        for name, variable in chosen.items()
        if variables.get(variable)
    }
    return {**filled, **asked}


def allowed(name: str, trunk: TrunkSettings) -> bool:
    """Whether a request may ask for a header field of that name in its INVITE over `trunk`."""
    listed = any(fnmatchcase(name.lower(), each.lower()) for each in trunk.allow_headers)
    return listed and name.lower() not in IDENTITY_HEADERS


def checked_headers(headers: Mapping[str, str], trunk: TrunkSettings) -> dict[str, str]:
    """Returns the header fields that a request wants on its INVITE. Raises `InvalidRequest` for names that
    are not in the trunk's `allow_headers`, and for values that cannot be sent."""
    if len(headers) > HEADERS_LIMIT:
        raise InvalidRequest(f"headers: at most {HEADERS_LIMIT}")
    for name, value in headers.items():
        if not allowed(name, trunk):
            raise InvalidRequest(f"headers: {readable(name)[:64]!r} is not in the trunk's allow_headers")
        if len(value) > VALUE_LIMIT:
            raise InvalidRequest(f"headers: {name!r} has more than {VALUE_LIMIT} characters")
    try:
        check_headers(headers)
    except LocalError as error:
        raise InvalidRequest(f"headers: {error}") from None
    return dict(headers)


def ended(call: Call) -> dict[str, Any]:
    """Returns how the media of a call was protected, and the reasons that the far end gave for the call's
    end, for its record."""
    reasons = [
        {"protocol": each.protocol, "cause": each.cause, "text": readable(each.text)}
        for each in call.reasons[:10]
    ]
    encryption = {"keys": call.encryption.keys, "suite": call.encryption.suite or None}
    return {"mediaEncryption": encryption} | ({"reasons": reasons} if reasons else {})
