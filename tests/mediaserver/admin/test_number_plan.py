"""Who answers a number, and who may claim it where companies share a carrier's addresses."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

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


def test_patterns_claim_only_over_addresses_of_ones_own_or_out_of_the_file() -> None:
    ours = agent(1, "a", phone_number=None, phone_numbers=["+1415555*"])
    assert plan(ours).agent(DID, SHARED) is None
    assert plan(ours).agent(DID, ["a-line"]) == ours
    assert plan(ours, of_file=(ours,)).agent(DID, SHARED) == ours
    assert plan(ours, companies=(company("a", DID),)).agent(DID, SHARED) == ours


@pytest.mark.parametrize(
    ("called", "answers"),
    [
        ("+14155550101", "exact"),
        ("4155550101", "exact"),
        ("+14155550150", "range"),
        ("+14155550200", "prefix"),
        ("+14155560200", "six"),
        ("+442079460000", "all"),
        ("1001", "extension"),
        ("1002", "extensions"),
        ("10021", "all"),
        ("front-desk", "desk"),
        ("anonymous", "all"),
        ("", "all"),
    ],
)
def test_the_closest_pattern_counts(called: str, answers: str) -> None:
    patterns = {
        "all": "*",
        "six": "+1415556????",
        "prefix": "+1415555*",
        "range": "+14155550100-99",
        "exact": DID,
        "extensions": "10??",
        "extension": "1001",
        "desk": "front-desk",
    }
    agents = [
        agent(number, "a", name=name, phone_number=None, phone_numbers=[text])
        for number, (name, text) in enumerate(patterns.items())
    ]
    for order in (agents, agents[::-1]):
        found = plan(*order).agent(called, ["a-line"])
        assert found is not None
        assert found.name == answers


MONDAY_MS = 1_767_607_200_000  # 5 January 2026, 10:00 UTC
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("at_ms", "zone", "answers"),
    [
        (MONDAY_MS, "UTC", "day"),
        (MONDAY_MS - 2 * HOUR_MS, "UTC", "otherwise"),
        (MONDAY_MS - 2 * HOUR_MS, "Asia/Riyadh", "day"),
        (MONDAY_MS + 8 * HOUR_MS, None, "day"),  # 10:00 in San Francisco, as the number says
        (MONDAY_MS, None, "otherwise"),
        (MONDAY_MS + 12 * HOUR_MS, "UTC", "evening"),
        (MONDAY_MS - 24 * HOUR_MS, "UTC", "otherwise"),
    ],
)
def test_a_number_is_answered_by_the_time_of_day(at_ms: int, zone: str | None, answers: str) -> None:
    hours = {"otherwise": [], "day": ["mon-fri 09:00-17:00"], "evening": ["mon 21:00-24:00"]}
    agents = [
        agent(number, "a", name=name, answering_windows=windows, time_zone=zone)
        for number, (name, windows) in enumerate(hours.items())
    ]
    found = plan(*agents).agent(DID, ["a-line"], at_ms)
    assert found is not None
    assert found.name == answers


def test_outside_its_hours_an_agent_leaves_its_number_to_the_next_pattern() -> None:
    day = agent(1, "a", answering_windows=["mon 09:00-17:00"], time_zone="UTC")
    everything = agent(2, "a", phone_number=None, phone_numbers=["*"])
    assert plan(day, everything).agent(DID, ["a-line"], MONDAY_MS) == day
    assert plan(day, everything).agent(DID, ["a-line"], MONDAY_MS + 12 * HOUR_MS) == everything
    assert plan(day).agent(DID, ["a-line"], MONDAY_MS + 12 * HOUR_MS) is None


@pytest.mark.parametrize(
    "text", ["", "+", "+12", "**", "+1415555012?*x", "+14155550199-00", "+1415-+14159", "a b", "sip:x", "x?y"]
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        agent(1, "a", phone_numbers=[text])


@pytest.mark.parametrize("name", ["nobody-line", ""])
def test_a_trunk_that_is_not_there_answers_nothing(name: str) -> None:
    assert plan(agent(1, "a")).agent(DID, [name]) is None
