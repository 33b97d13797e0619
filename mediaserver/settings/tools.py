"""The table [[agent.pre_call_tool]]: an HTTP request before a call, and the variables that its answer
fills."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from mediaserver.settings.values import Name
from pipeline.engines.tables import HeaderName, HttpUrl, Secret, Table, Variable


def _path(value: str) -> str:
    if not all(value.split(".")) or len(value) > 200:
        raise ValueError('must be names with dots between them, such as "customer.name"')
    return value


Path = Annotated[str, AfterValidator(_path)]


class PreCallTool(Table):
    """[[agent.pre_call_tool]]: an HTTP endpoint that gets, by POST, what is known of the call. `variables`:
    prompt variables, and where their values stand in the JSON answer; `on_failure`: what follows when the
    endpoint does not answer in `timeout_s`, not with 2xx, or not with all variables."""

    name: Name
    url: HttpUrl
    headers: dict[HeaderName, Secret] = Field(default_factory=dict, max_length=20)
    timeout_s: float = Field(default=3.0, ge=0.1, le=10)
    on_failure: Literal["go_on", "do_not_dial"] = "go_on"
    variables: dict[Variable, Path] = Field(default_factory=dict, max_length=100)

    @model_validator(mode="after")
    def _sendable(self) -> Self:
        for name, value in self.headers.items():
            text = value.get_secret_value()
            if not text.isascii() or not text.isprintable():
                raise ValueError(f"headers.{name}: must be printable ASCII")
        return self
