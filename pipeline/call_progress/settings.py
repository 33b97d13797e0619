"""The table [agent.line], declared once for the configuration file and the session."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from pipeline.engines.tables import Table


class AnswerDetectionSettings(Table):
    """[agent.line]: how an outbound agent treats an answering machine and hold music.

    `answering_machine`: "talk" (as to a person), "wait" (talk after the machine's greeting), "leave_message"
    (say `message` after the beep and hang up) or "hang_up". `hold_music`, also for ring-back after the
    answer: "talk", "wait" (for a person, at most `hold_s` seconds) or "hang_up"."""

    answering_machine: Literal["talk", "wait", "leave_message", "hang_up"] = "talk"
    message: str = Field(default="", max_length=2000)
    hold_music: Literal["talk", "wait", "hang_up"] = "talk"
    hold_s: float = Field(default=120.0, ge=5, le=3600)

    @model_validator(mode="after")
    def _worded(self) -> Self:
        if self.answering_machine == "leave_message" and not self.message.strip():
            raise ValueError("message: leave_message needs the words to leave")
        return self
