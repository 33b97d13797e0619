"""The configuration file: its tables, how it is read and checked."""

from mediaserver.settings.agent import AgentSettings, AgentTerms, EngineChain, EngineSettings, SessionSettings
from mediaserver.settings.company import (
    CompanySettings,
    CompanyTerms,
    ContactLimit,
    KeySettings,
    TrunkSettings,
    TrunkTerms,
    WebhookSettings,
)
from mediaserver.settings.document import Settings, defaults_document
from mediaserver.settings.load import load
from mediaserver.settings.server import (
    OverloadSettings,
    RoomsSettings,
    ServerSettings,
    SipSettings,
    SpeechSettings,
    TracingSettings,
)
from mediaserver.settings.users import UserSettings
from mediaserver.settings.values import split_address, split_ports
from pipeline.agents.llm.table import LlmSettings
from pipeline.engines.tables import problem_of, reveal, revealed

__all__ = [
    "AgentSettings",
    "AgentTerms",
    "CompanySettings",
    "CompanyTerms",
    "ContactLimit",
    "EngineChain",
    "EngineSettings",
    "KeySettings",
    "LlmSettings",
    "OverloadSettings",
    "RoomsSettings",
    "ServerSettings",
    "SessionSettings",
    "Settings",
    "SipSettings",
    "SpeechSettings",
    "TracingSettings",
    "TrunkSettings",
    "TrunkTerms",
    "UserSettings",
    "WebhookSettings",
    "defaults_document",
    "load",
    "problem_of",
    "reveal",
    "revealed",
    "split_address",
    "split_ports",
]
