"""Who answers a number, and who may claim it where companies share a carrier's addresses."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from mediaserver.admin.number_plan import NumberPlan
from mediaserver.settings import AgentSettings, CompanySettings, TrunkSettings

DID = "+14155550101"
SCRIPT = {"start": "a", "step": [{"id": "a", "say": "Goodbye.", "action": "hang_up"}]}
CARRIER = "203.0.113.0/28"


def company(company_id: str, *numbers: str) -> CompanySettings:
    return CompanySettings.model_validate(
        {"id": company_id, "country": "US", "caller_ids": list(numbers) or None}
    )


def agent(number: int, owner: str, **more: Any) -> AgentSettings:
    """An inbound agent of `owner` on the trunk "`owner`-line"."""
    table = {"phone_number": DID, **more}
    return AgentSettings.model_validate(
        {
            "id": str(UUID(int=number)),
            "company": owner,
            "direction": "inbound",
            "trunk": f"{owner}-line",
            "script": SCRIPT,
            **{key: value for key, value in table.items() if value is not None},
        }
    )


def plan(
    *agents: AgentSettings,
    companies: tuple[CompanySettings, ...] = (),
    of_file: tuple[AgentSettings, ...] = (),
) -> NumberPlan:
    known = {name: company(name) for name in ("a", "b", "c")} | {each.id: each for each in companies}
    trunks = {
        f"{name}-line": TrunkSettings(
            id=f"{name}-line", company=name, uri="sip:carrier.example", allow_from=(CARRIER,)
        )
        for name in ("a", "b")
    }
    trunks["c-line"] = TrunkSettings(
        id="c-line", company="c", uri="sip:pbx.example", allow_from=("192.0.2.1/32",)
    )
    return NumberPlan(agents, trunks=trunks, companies=known, of_file={each.id for each in of_file})


SHARED = ["a-line", "b-line"]


def test_each_companys_number_is_answered_by_its_agent() -> None:
    ours, theirs = agent(1, "a"), agent(2, "b", phone_number="+14155550102")
    numbers = plan(ours, theirs)
    assert numbers.agent(DID, SHARED) == ours
    assert numbers.agent("14155550102", SHARED) == theirs
    assert numbers.agent("+14155550103", SHARED) is None


def test_a_listed_number_is_its_companys_alone() -> None:
    ours, theirs = agent(1, "a"), agent(2, "b")
    for owner, answers in (("a", ours), ("b", theirs)):
        assert plan(ours, theirs, companies=(company(owner, DID),)).agent(DID, SHARED) == answers
    assert plan(theirs, companies=(company("a", DID),)).agent(DID, SHARED) is None
    assert plan(theirs, companies=(company("b", "+14155550199"),)).agent(DID, SHARED) is None


def test_the_files_agents_come_before_those_made_over_the_api() -> None:
    ours, theirs = agent(1, "a"), agent(2, "b")
    assert plan(ours, theirs, of_file=(theirs,)).agent(DID, SHARED) == theirs
    assert plan(ours, theirs, of_file=(ours,)).agent(DID, SHARED) == ours


def test_equal_claims_of_two_companies_give_the_number_to_neither() -> None:
    ours, theirs = agent(1, "a"), agent(2, "b")
    numbers = plan(ours, theirs)
    assert numbers.agent(DID, SHARED) is None
    assert not numbers.gets(ours)
    assert not numbers.gets(theirs)


def test_addresses_of_its_own_leave_a_company_all_numbers() -> None:
    apart = agent(3, "c")
    numbers = plan(agent(1, "a"), apart, companies=(company("a", DID),))
    assert numbers.agent(DID, ["c-line"]) == apart
    assert numbers.gets(apart)


@pytest.mark.parametrize("name", ["nobody-line", ""])
def test_a_trunk_that_is_not_there_answers_nothing(name: str) -> None:
    assert plan(agent(1, "a")).agent(DID, [name]) is None
