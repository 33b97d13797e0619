"""The tables [[sip.user]]: the users of a company, who register telephones, call agents and are called."""

from __future__ import annotations

import re
import uuid
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator

from mediaserver.numbers.users import LINE
from mediaserver.settings.company import TrunkSettings
from mediaserver.settings.values import Name, read_by
from pipeline.engines.tables import Secret, Table, reveal

_agent_id = read_by(uuid.UUID, "must be the id of an agent", normal=True)


class UserSettings(Table):
    """[[sip.user]]: an account at this server. `password`, or HA1 by either hash for `sip.realm`; without
    any nobody gets in. `digest`:
    the hashes that its telephones are challenged with. `agents`: those that it may call and that may call it;
    None, every agent of the company."""

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")
    company: Name
    password: Secret | None = None
    ha1_md5: Secret | None = None
    ha1_sha256: Secret | None = None
    digest: tuple[Literal["SHA-256", "MD5"], ...] = Field(default=("MD5",), min_length=1)
    agents: tuple[Annotated[str, AfterValidator(_agent_id)], ...] | None = None
    may_call: bool = True
    may_be_called: bool = True
    telephones: int = Field(default=10, ge=1, le=100)

    @field_validator("ha1_md5", "ha1_sha256")
    @classmethod
    def _hexadecimal(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        digits = 64 if info.field_name == "ha1_sha256" else 32
        if value is not None and re.fullmatch(f"[0-9a-f]{{{digits}}}", reveal(value)) is None:
            raise ValueError(f"must be {digits} hexadecimal digits in lower case")
        return value

    @property
    def hashes(self) -> dict[str, str]:
        """HA1 by the name of its hash; empty with a password."""
        known = {"MD5": self.ha1_md5, "SHA-256": self.ha1_sha256}
        return {name: reveal(value) for name, value in known.items() if value is not None}

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        hashed = self.ha1_md5 is not None or self.ha1_sha256 is not None
        if hashed and self.password is not None:
            raise ValueError("password: a user has a password, or ha1_md5 or ha1_sha256")
        if self.password is not None and len(reveal(self.password)) < 8:
            raise ValueError("password: must have at least 8 characters")
        if hashed and not self.hashes.keys() >= set(self.digest):
            raise ValueError("digest: names a hash of which there is no HA1")
        return self

    def reaches(self, agent_id: str) -> bool:
        """Whether the user may call that agent of its company, and be called by it."""
        return self.agents is None or agent_id in self.agents


def line_of(company_id: str) -> TrunkSettings:
    """Returns the line of a company's users: a trunk without a carrier, whose peers are their telephones.
    What SDP says of a telephone behind a NAT is not where it is: its media comes from where it is."""
    line = TrunkSettings(
        id="users",
        company=company_id,
        uri="sip:users.invalid",
        number_format="{e164}",
        srtp="optional",
        symmetric_rtp=True,
        codecs=("opus", "g722", "pcmu", "pcma"),
    )
    return line.model_copy(update={"id": f"{LINE}{company_id}"})
