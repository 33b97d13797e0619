"""The settings of a conversation: the times and phrases that an operator tunes per agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """Times and phrases of a conversation. The defaults suit a telephone call in English or Arabic. Raises
    ValueError for a time that is not above 0, or a negative count.

    End of the caller's turn, as silence after the last voiced sample:
    `endpoint_ms`: ends an ordinary turn; `endpoint_complete_ms`: ends a complete answer;
    `endpoint_unfinished_ms`: ends a turn after a phrase that asks for more; `endpoint_digits_ms`: ends a turn
    while digits are dictated. `eot_threshold`, `eot_action_delay_ms`, `eot_timeout_ms`: the parameters of
    `pipeline.endpointing.policy.EndOfTurn`, which decides instead where there is an end-of-turn detector.
    `speculate_ms`: silence after which the recogniser decodes, in case the turn is over; `prepare_early`: the
    agent prepares an answer then, which is held until the turn is over for certain. `stt_deadline_ms`: the
    longest wait for the recogniser after the end-point.
    `max_utterance_s`: length at which an utterance is ended. `min_speech_ms`: a voice shorter than this
    without words is noise.

    The caller's voice over the agent:
    `duck_ms`: length at which the agent lowers its volume. `barge_in_ms`: length without understood words at
    which the agent stops (words meant for the agent stop it at once); `hush_ms`: the same for a voice with a
    pitch, which no cough has. After a backchannel ("mm-hm") the agent goes on. `halt_ms`: length from which a
    voice was no noise, and the agent does not go on. `opening_ms`: the first part of the greeting, which no
    voice stops, because most people say "hello?" over a greeting. `overlap_ms`: words over the agent are an
    answer if the agent's words end within this time.

    Silence of the agent:
    `dead_air_ms`: longest silence after the caller's last word, and after each filler; `max_fillers`: fillers
    in a row before the turn counts as failed. `tts_stall_ms`: longest wait for a chunk of a voice.
    `max_failures`: failed turns in a row after which the caller is asked to say it again; the next one ends
    the call with an apology.

    Silence of the caller, keys and the end:
    `reprompt_s`: silence before a reprompt; `max_reprompts`: reprompts in a row before the call ends.
    `key_pause_ms`: pause that ends keyed digits. `max_duration_s`: the longest call. `linger_ms`: time
    between the last packet of the last words and the hang-up, so that the far end's jitter buffer plays them.
    `record_masked`: the recording keeps the caller's voice during a masked answer.
    `rescue`: the number or room that the caller is transferred to after an apology; "": the call ends.

    `pronunciation`: what the voice says in place of a word, by the word as it is written.
    `words`: more entries for the lists of `pipeline.text.word_lists`, by the name of the list.
    `filler`, `retry`, `apology`, `goodbye`: the phrases for a late agent, a failed turn, the end after failed
    turns, and a caller who is silent; "" plays a short tone.
    """

    language: str = "en"
    endpoint_ms: int = 500
    endpoint_complete_ms: int = 300
    endpoint_unfinished_ms: int = 1100
    endpoint_digits_ms: int = 1200
    eot_threshold: float = 0.75
    eot_action_delay_ms: int = 300
    eot_timeout_ms: int = 1600
    speculate_ms: int = 100
    prepare_early: bool = True
    stt_deadline_ms: int = 800
    duck_ms: int = 240
    barge_in_ms: int = 700
    hush_ms: int = 700
    halt_ms: int = 1600
    opening_ms: int = 1000
    overlap_ms: int = 600
    min_speech_ms: int = 200
    max_utterance_s: float = 45.0
    dead_air_ms: int = 2000
    max_fillers: int = 2
    max_failures: int = 2
    tts_stall_ms: int = 1500
    reprompt_s: float = 8.0
    max_reprompts: int = 2
    max_duration_s: float = 600.0
    key_pause_ms: int = 2500
    linger_ms: int = 160
    record_masked: bool = False
    rescue: str = ""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pronunciation: Mapping[str, str] = field(default_factory=dict)
    filler: str = "One moment, please."
    retry: str = "I am sorry, there was a problem. Could you say that again, please?"
    apology: str = "I am sorry, something went wrong. Please call again later."
    goodbye: str = "Goodbye."

    def __post_init__(self) -> None:
        for name in (
            "duck_ms",
            "barge_in_ms",
            "hush_ms",
            "endpoint_ms",
            "endpoint_complete_ms",
            "speculate_ms",
            "dead_air_ms",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: must be above 0")
        if self.reprompt_s <= 0 or self.max_duration_s <= 0 or self.max_utterance_s <= 0:
            raise ValueError("reprompt_s, max_duration_s, max_utterance_s: must be above 0")
        if min(self.max_reprompts, self.max_fillers, self.max_failures) < 0:
            raise ValueError("max_reprompts, max_fillers, max_failures: must not be negative")
