"""The tables of the configuration, and the settings of the parts that they are handed on to."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from mediaserver.settings import SipSettings, TrunkSettings
from mediaserver.settings.agent import SessionSettings as SessionTable
from pipeline.settings import SessionSettings
from sip.endpoint import EndpointSettings
from sip.trunk_settings import TrunkSettings as SipTrunkSettings


@pytest.mark.parametrize(
    ("part", "table", "of_no_key"),
    [
        (SipTrunkSettings, TrunkSettings, "register tls min_session_expires_s trusted_hosts egress"),
        (EndpointSettings, SipSettings, "tls_server descriptor_ceiling tls_client"),
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
