"""The settings of a conversation: the times and phrases that an operator tunes per agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """Times of a conversation. The defaults suit a telephone call in English or Arabic.

    `endpoint_ms`: silence that ends an ordinary turn; `endpoint_complete_ms` when the answer is already
    complete, `endpoint_unfinished_ms` after a phrase that asks for more, `endpoint_digits_ms` while digits
    are dictated.
    `eot_threshold`, `eot_action_delay_ms`, `eot_timeout_ms`: the knobs of
    `pipeline.endpointing.policy.EndOfTurn`, which decides instead where a scorer judges sound and words.
    `speculate_ms`: silence after which the recogniser is asked, on the chance that the turn is over.
    `prepare_early`: the agent is asked then too, and its answer held until the turn is over for certain.
    `stt_deadline_ms`: how long after the end-point its answer is waited for.
    `duck_ms`: voice over the agent that makes it lower its own; `barge_in_ms`: voice of which no word is
    understood that makes it fall silent (words that are meant for the agent stop it at once); `hush_ms`: the
    same for sound with a pitch, which no cough has; after a mere "mm-hm" the agent goes on. `halt_ms`: voice
    so long was no noise, and the agent does not go on after it; `opening_ms`: the first so much of the first
    words is never stopped, because most people say "hello?" over them.
    `overlap_ms`: something said over the agent is an answer if the agent ends within this time.
    `min_speech_ms`: a sound shorter than this in which no words were found was a noise.
    `dead_air_ms`: from the caller's last word until something must be heard, and again after it;
    `max_fillers`: so often that is a filler, then an apology and the end. An engine that has a deadline has
    it before that. `tts_stall_ms`: the wait for a chunk.
    `reprompt_s`, `max_reprompts`: silence of the caller; when it is used up the call ends.
    `key_pause_ms`: ends keyed digits; `linger_ms`: between the last words' last packet and the hang-up, so
    that the far end's jitter buffer has played them.
    `record_masked`: the recording holds the caller's voice also while they give an answer that is masked.
    `rescue`: after the apology for something broken the caller is handed on to this number or room instead
    of being hung up on; "": there is nobody.
    `words`: more entries for the lists of `pipeline.text.word_lists`, by the name of the list.
    `filler`, `apology`, `goodbye`: what is said by itself when the agent is late, broken, or nobody answers;
    "" for none (a short tone stands for it).
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
    tts_stall_ms: int = 1500
    reprompt_s: float = 8.0
    max_reprompts: int = 2
    max_duration_s: float = 600.0
    key_pause_ms: int = 2500
    linger_ms: int = 160
    record_masked: bool = False
    rescue: str = ""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    filler: str = "One moment, please."
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
        if self.max_reprompts < 0 or self.max_fillers < 0:
            raise ValueError("max_reprompts, max_fillers: must not be negative")
