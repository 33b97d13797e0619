"""The tables of the configuration, and the settings of the parts that they are handed on to."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from mediaserver.settings import SipSettings, TrunkSettings
from mediaserver.settings.agent import SessionSettings as SessionTable
from pipeline.settings import SessionSettings
from sip.endpoint import EndpointSettings
from sip.trunk_settings import TrunkSettings as SipTrunkSettings


@pytest.mark.parametrize(
    ("part", "table", "of_no_key"),
    [
        (SipTrunkSettings, TrunkSettings, "register tls min_session_expires_s trusted_hosts egress users"),
        (EndpointSettings, SipSettings, "tls_server descriptor_ceiling tls_client participants"),
        (
            SessionSettings,
            SessionTable,
            "language words pronunciation filler retry apology goodbye min_speech_ms endpoint_complete_ms "
            "endpoint_unfinished_ms endpoint_digits_ms key_pause_ms prepare_early opening_ms stt_deadline_ms "
            "tts_stall_ms speculate_ms dead_air_ms halt_ms overlap_ms linger_ms max_utterance_s",
        ),
    ],
)
def test_a_field_without_a_key_of_its_name_is_listed(part: Any, table: Any, of_no_key: str) -> None:
    """Keys are handed on by name: one that is renamed at one end only would be lost."""
    assert {each.name for each in fields(part)} - table.model_fields.keys() == set(of_no_key.split())


@pytest.mark.parametrize(
    ("part", "table", "converted"),
    [
        (SipTrunkSettings, TrunkSettings, "password srtp outbound_proxy public_address engine"),
        (EndpointSettings, SipSettings, "rtp_ports"),
        (SessionSettings, SessionTable, ""),
    ],
)
def test_a_field_with_a_key_of_its_name_has_its_type(part: Any, table: Any, converted: str) -> None:
    """mypy does not see values that are handed on by name."""
    of_part, of_table = get_type_hints(part), get_type_hints(table)
    shared = {each.name for each in fields(part)} & table.model_fields.keys()
    other = {name for name in shared if _plain(of_part[name]) != _plain(of_table[name])}
    assert other == set(converted.split())


def _plain(hint: Any) -> Any:
    """The type of `hint`, with the type of its words for a Literal."""
    if get_origin(hint) is Literal:
        return type(get_args(hint)[0])
    if get_origin(hint) is tuple:
        return tuple[tuple(each if each is ... else _plain(each) for each in get_args(hint))]  # type: ignore[misc]
    return hint
