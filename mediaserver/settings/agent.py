"""The table [[agent]]: what talks on a call, and with which engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from mediaserver.settings.presets import with_preset
from mediaserver.settings.tools import PreCallTool
from mediaserver.settings.values import (
    E164,
    CalledNumber,
    CallingWindow,
    Country,
    Name,
    TimeZone,
    formed,
    read_by,
)
from pipeline import settings
from pipeline.agents.llm.realtime.table import RealtimeSettings
from pipeline.agents.llm.table import LlmSettings
from pipeline.call_progress.settings import AnswerDetectionSettings
from pipeline.engines.tables import Options, Table, resolve_env
from pipeline.text.word_lists import EXTENSIBLE

AUTO: Final = "auto"
"""An engine's name that means the best engine on this machine."""


def _resolved(value: Any, info: ValidationInfo) -> Any:
    """`value` with its `env:` texts resolved, those of tables in it too, such as `headers`."""
    if isinstance(value, Mapping):
        return {name: _resolved(inner, info) for name, inner in value.items()}
    return resolve_env(value, info)


class EngineSettings(Table):
    """An engine by its name, with its own options beside it.

    The engine itself checks the options when it is built."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    engine: str = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str):
            return {"engine": value}
        if not isinstance(value, Mapping):
            return value
        resolved: dict[str, Any] = {}
        for key, inner in value.items():
            try:
                resolved[key] = _resolved(inner, info)
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from error
        return resolved

    @property
    def options(self) -> Mapping[str, Any]:
        """Everything beside `engine`, for the engine's `from_settings`."""
        return dict(self.model_extra or {})

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """Shows the options' names only: their values may be secrets."""
        return [("engine", self.engine), ("options", sorted(self.options))]


class EngineChain(EngineSettings):
    """[agent.stt], [agent.tts]: an engine ("auto": the best on this machine), and in `fallback` the engines
    that replace it when it fails in a call, in order, by name or as tables. Absent: the engine that comes
    with the server; []: none."""

    fallback: tuple[EngineSettings, ...] | None = Field(default=None, max_length=5)

    @property
    def chain(self) -> tuple[EngineSettings, ...]:
        """The engine and its fallbacks, in order."""
        return (self, *(self.fallback or ()))


_USUAL: Final = settings.SessionSettings()


class SessionSettings(Table):
    """[agent.session]: the times of the conversation. `eot_action_delay_ms` and `eot_timeout_ms` 0: derived
    from `endpoint_ms`."""

    endpoint_ms: int = Field(default=_USUAL.endpoint_ms, ge=100, le=5000)
    eot_threshold: float = Field(default=_USUAL.eot_threshold, gt=0, le=1)
    eot_action_delay_ms: int = Field(default=0, ge=0, le=5000)
    eot_timeout_ms: int = Field(default=0, ge=0, le=20_000)
    duck_ms: int = Field(default=_USUAL.duck_ms, ge=40, le=5000)
    hush_ms: int = Field(default=_USUAL.hush_ms, ge=40, le=5000)
    barge_in_ms: int = Field(default=_USUAL.barge_in_ms, ge=40, le=5000)
    reprompt_s: float = Field(default=_USUAL.reprompt_s, ge=1, le=120)
    max_reprompts: int = Field(default=_USUAL.max_reprompts, ge=0, le=20)
    max_fillers: int = Field(default=_USUAL.max_fillers, ge=0, le=10)
    max_failures: int = Field(default=_USUAL.max_failures, ge=0, le=10)
    max_duration_s: float = Field(default=1800.0, ge=5, le=14_400)
    recording: bool = True
    record_masked: bool = False
    turn_model: str = ""
    rescue: str = ""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.action_delay_ms > self.timeout_ms:
            raise ValueError("eot_timeout_ms: must not be below the action delay")
        return self

    @property
    def action_delay_ms(self) -> int:
        """Milliseconds of silence that end a turn which seems to be over."""
        usual_ms = round(self.endpoint_ms * _USUAL.eot_action_delay_ms / _USUAL.endpoint_ms)
        return self.eot_action_delay_ms or usual_ms

    @property
    def timeout_ms(self) -> int:
        """Milliseconds of silence that end any turn."""
        return self.eot_timeout_ms or max(_USUAL.eot_timeout_ms, 3 * self.endpoint_ms)


ROOM = "room:"
"""The prefix of a transfer target that is a room."""

ANY_ROOM = "room:*"


_target = formed(
    r"\+[1-9][0-9]{4,14}|room:[A-Za-z0-9_.*-]{1,64}",
    'must be a number such as "+966110000000", "room:NAME", or "room:*" for any room',
)


Pauses = tuple[Annotated[float, Field(ge=1, le=7 * 24 * 3600)], ...]
"""Seconds before each further attempt."""


class RetrySettings(Table):
    """[agent.retry]: the pauses before further attempts, by the cause for which an attempt failed. Only final
    responses of the far end count: a call whose INVITE got none is never dialled again."""

    busy: Pauses = Field(default=(), max_length=20)
    no_answer: Pauses = Field(default=(), max_length=20)
    rejected: Pauses = Field(default=(), max_length=20)
    not_found: Pauses = Field(default=(), max_length=20)
    unreachable: Pauses = Field(default=(), max_length=20)
    incompatible: Pauses = Field(default=(), max_length=20)
    remote_error: Pauses = Field(default=(), max_length=20)


RedactedKind = Literal["card", "iban", "email", "phone", "national_id"]


class RedactionSettings(Table):
    """[agent.redaction]: what is replaced by its kind in transcripts, turns, analysis and events, and silent
    in the recording. `country`: of telephone numbers without a country, and of national ids."""

    kinds: tuple[RedactedKind, ...] = ()
    country: Country | None = None
    audio: bool = True


class PolicySettings(Table):
    """[agent.policy]: lines before the agent's own words. `disclosure`: who calls, and that it is a machine;
    `recording_consent`: "assumed", or "ask", by `consent_question`, with nothing recorded before a yes."""

    disclosure: str = Field(default="", max_length=500)
    recording_consent: Literal["assumed", "ask"] = "assumed"
    consent_question: str = Field(default="", max_length=500)

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.recording_consent == "ask" and not self.consent_question:
            raise ValueError("consent_question: recording_consent asks it")
        return self


_QUESTION: Final = "Press 1 or say yes to take the call. Press 2 or say no to leave it."


class TransferSettings(Table):
    """[agent.transfer]: how callers are handed to people. "blind": as soon as somebody answers; "attended":
    `announce` is said to the person first; "warm": then `briefing` ("{{summary}}" is the model's), and
    `question`, which the person answers. Whom nobody takes is back with the agent, unless "blind"."""

    kind: Literal["blind", "attended", "warm"] = "blind"
    announce: str = Field(default="", max_length=500)
    briefing: str = Field(default="{{summary}}", max_length=1000)
    question: str = Field(default=_QUESTION, min_length=1, max_length=500)


BLIND: Final = TransferSettings()

TransferTarget = Annotated[str, AfterValidator(_target)]
"""A number as E.164, or "room:" and the name of a room."""

_TEXTS: Mapping[str, Mapping[str, str]] = {
    "ar": {
        "apology": "عذراً، حدثت مشكلة فنية. يرجى الاتصال بنا لاحقاً.",
        "unreachable": "عذراً، لا يمكن لأحد أن يجيب على مكالمتك الآن. مع السلامة.",
    }
}
"""Default texts by language."""


def _asks_the_model(script: Mapping[str, Any]) -> bool:
    steps = script.get("step")
    return isinstance(steps, list) and any(isinstance(step, Mapping) and "llm" in step for step in steps)


WrittenWord = Annotated[str, Field(pattern=r"^\S{1,100}$")]
SpokenText = Annotated[str, Field(min_length=1, max_length=200, pattern=r"\w")]


_WITH_PRESETS: Final[Mapping[str, str]] = {
    "stt": "stt",
    "tts": "tts",
    "tts_fallback": "tts",
    "llm": "llm",
    "realtime": "realtime",
}
"""The tables that may name a preset, and of which kind."""


class AgentTerms(Table):
    """The settings of an agent without its id and company. `own`: somebody's own program in place of a model
    or a script. `phone_number`: the number that the agent calls
    from, or is called at; `phone_numbers`: patterns of further numbers that it is called at, in
    `answering_windows` alone where there are some. `trunks`: further ones that its calls go over, in order,
    where `trunk` does not carry the number or does not take the call."""

    name: str = ""
    direction: Literal["outbound", "inbound"] = "outbound"
    trunk: Name | None = None
    trunks: tuple[Name, ...] = Field(default=(), max_length=10)
    phone_number: E164 | None = None
    phone_numbers: tuple[CalledNumber, ...] = Field(default=(), max_length=1000)
    answering_windows: tuple[CallingWindow, ...] = Field(default=(), max_length=50)
    time_zone: TimeZone | None = None
    language: str = Field(default="en", pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")
    greeting: str = ""
    apology: str = "I am sorry, there is a technical problem. Please call again later."
    unreachable: str = "I am sorry, nobody can take your call right now. Goodbye."
    transfer_targets: Mapping[str, TransferTarget] = Field(default_factory=dict, max_length=100)
    transfer_ring_s: float = Field(default=30.0, ge=5, le=120)
    transfer: TransferSettings = BLIND
    is_test: bool = False
    llm: LlmSettings | None = None
    realtime: RealtimeSettings | None = None
    script: Options | None = None
    own: EngineSettings | None = None
    stt: EngineChain = EngineChain(engine=AUTO)
    tts: EngineChain = EngineChain(engine=AUTO)
    tts_fallback: EngineSettings | None = None
    vad: Literal["energy", "webrtcvad", "silero"] = "energy"
    session: SessionSettings = SessionSettings()
    redaction: RedactionSettings = RedactionSettings()
    policy: PolicySettings = PolicySettings()
    line: AnswerDetectionSettings = AnswerDetectionSettings()
    words: Mapping[str, tuple[str, ...]] = Field(default_factory=dict, max_length=20)
    pronunciation: Mapping[WrittenWord, SpokenText] = Field(default_factory=dict, max_length=1000)
    retry: RetrySettings = RetrySettings()
    pre_call_tools: tuple[PreCallTool, ...] = Field(default=(), alias="pre_call_tool", max_length=10)
    calling_windows: tuple[CallingWindow, ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_presets(cls, table: Any, info: ValidationInfo) -> Any:
        """Fills in the presets of the agent's engines."""
        if not isinstance(table, Mapping):
            return table
        filled = dict(table)
        for key in filled.keys() & _WITH_PRESETS.keys():
            try:
                filled[key] = with_preset(_WITH_PRESETS[key], filled[key], info)
            except ValueError as error:
                raise ValueError(f"{key}.{error}") from error
        return filled

    @model_validator(mode="before")
    @classmethod
    def _in_its_language(cls, table: Any) -> Any:
        """Fills in the texts of the agent's language where the table has none."""
        if not isinstance(table, Mapping):
            return table
        texts = _TEXTS.get(str(table.get("language", "")).split("-")[0], {})
        return {**texts, **table}

    @field_validator("words")
    @classmethod
    def _listed(cls, words: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        unknown = sorted(set(words) - set(EXTENSIBLE))
        if unknown:
            raise ValueError(f"{unknown[0]}: not one of {', '.join(EXTENSIBLE)}")
        return words

    @model_validator(mode="after")
    def _one_mind(self) -> Self:
        asks = self.script is not None and _asks_the_model(self.script)
        if self.own is not None:
            if self.llm is not None or self.script is not None:
                raise ValueError("own: an agent of one's own has neither [agent.llm] nor [agent.script]")
        elif (self.llm is None) == (self.script is None) and not (asks and self.llm is not None):
            raise ValueError("llm: an agent has either [agent.llm] or [agent.script]; both if a step asks it")
        if self.realtime is not None and (self.llm is None or self.script is not None):
            raise ValueError(
                "realtime: stands beside [agent.llm], which has the prompt and goes on without it"
            )
        if self.session.rescue and self.session.rescue not in self.transfer_targets:
            raise ValueError("session.rescue: not one of transfer_targets")
        return self

    @model_validator(mode="after")
    def _reached_over_trunks(self) -> Self:
        if self.direction != "inbound" and self.phone_numbers:
            raise ValueError("phone_numbers: only an inbound agent is called")
        if self.direction == "inbound" and not self.called_at:
            raise ValueError("phone_number: an inbound agent needs the number that it is called at")
        if self.trunks and self.trunk is None:
            raise ValueError("trunks: further ones; the first is trunk")
        if len(set(self.trunk_names)) != len(self.trunk_names):
            raise ValueError("trunks: names one twice, or the one that trunk names")
        return self

    @property
    def trunk_names(self) -> tuple[str, ...]:
        """The trunks that the agent's calls go over, in order."""
        return () if self.trunk is None else (self.trunk, *self.trunks)

    @property
    def called_at(self) -> tuple[str, ...]:
        """The patterns of the numbers that an inbound agent answers."""
        own = () if self.phone_number is None else (self.phone_number,)
        return tuple(dict.fromkeys((*own, *self.phone_numbers)))

    def reaches(self, wanted: str) -> str:
        """Returns the number or room that `wanted` names: a name in `transfer_targets`, or one of those
        targets itself; "" for none of them."""
        targets = self.transfer_targets
        if targets.get(wanted, ANY_ROOM) != ANY_ROOM:
            return targets[wanted]
        allowed = set(targets.values())
        return wanted if wanted in allowed or (wanted.startswith(ROOM) and ANY_ROOM in allowed) else ""


class AgentSettings(AgentTerms):
    """[[agent]]: an agent of a company, which talks on calls."""

    id: Annotated[str, AfterValidator(read_by(UUID, "must be a UUID", normal=True))]
    company: Name
