"""The table [agent.line], declared once for the configuration file and for the conversation.

`answering_machine`: "talk" (to it, as to anybody), "wait" (for the end of its greeting, then talk),
"leave_message" (`message` after the beep, then hang up) or "hang_up". `hold_music`, also for ring-back after
the answer: "talk", "wait" (for a person, `hold_s` at most) or "hang_up".
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from pipeline.engines.tables import Table


class LineSettings(Table):
    """[agent.line]: what an outbound agent does when a machine answers, or music."""

    answering_machine: Literal["talk", "wait", "leave_message", "hang_up"] = "talk"
    message: str = Field(default="", max_length=2000)
    hold_music: Literal["talk", "wait", "hang_up"] = "talk"
    hold_s: float = Field(default=120.0, ge=5, le=3600)

    @model_validator(mode="after")
    def _worded(self) -> Self:
        if self.answering_machine == "leave_message" and not self.message.strip():
            raise ValueError("message: leave_message needs the words to leave")
        return self
