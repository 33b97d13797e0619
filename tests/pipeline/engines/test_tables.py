"""What is wrong with the options of an engine, whatever types their author declared."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from pipeline.engines.tables import EngineTable, read_table
from pipeline.errors import SettingsRefused


class Options(EngineTable):
    """Of an engine of somebody else's."""

    bare: int = 1
    both: int = Field(default=1, ge=1, le=9)
    above: int = Field(default=1, gt=0)
    most: float = Field(default=1.0, le=2)
    either: Literal["a", "b"] | None = None
    figure: Literal[1, 2] = 1
    names: tuple[str, ...] = ()
    others: tuple[str, ...] | None = None
    steps: list[Annotated[int, Field(gt=0)]] = Field(default_factory=list)


class Inner(EngineTable):
    """A table in a table."""

    most: int = Field(default=1, ge=0, le=3)
    named: str = Field(default="", alias="name")


class Outer(EngineTable):
    """A table of tables."""

    one: Inner | None = None
    many: tuple[Inner, ...] = ()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"one": {"most": 4}}, ("one.most", "must be a whole number from 0 to 3")),
        ({"many": [{}, {"mots": 4}]}, ("many[1].mots", "unknown key; known are most, name")),
        ({"many": [{"name": 1}]}, ("many[0].name", "must be a string")),
        ({"many": [5]}, ("many[0]", "must be a table")),
    ],
)
def test_a_wrong_option_of_a_table_in_the_table_is_told_as_well(
    settings: dict[str, Any], problem: tuple[str, str]
) -> None:
    with pytest.raises(SettingsRefused) as caught:
        read_table("theirs", Outer, settings)
    assert caught.value.problems == (problem,)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("bare", "x", "input should be a valid integer"),
        ("both", 10, "must be a whole number from 1 to 9"),
        ("above", 0, "input should be greater than 0"),
        ("most", 3, "input should be less than or equal to 2"),
        ("either", "z", "'z' is not one of 'a' or 'b'"),
        ("figure", 3, "3 is not one of 1 or 2"),
        ("names", "x", "must be a list"),
        ("steps", 1, "input should be a valid list"),
        (
            "unknown",
            1,
            "unknown key; known are above, bare, both, either, figure, most, names, others, steps",
        ),
    ],
)
def test_a_wrong_option_is_told_by_key_and_reason(key: str, value: Any, reason: str) -> None:
    with pytest.raises(SettingsRefused) as caught:
        read_table("theirs", Options, {key: value})
    assert caught.value.problems == ((key, reason),)


def test_a_list_of_the_file_is_a_tuple_of_the_table() -> None:
    read = read_table("theirs", Options, {"names": ["x", "y"], "others": ["z"], "steps": [1]})
    assert (read.names, read.others, read.steps) == (("x", "y"), ("z",), [1])


def test_a_wrong_item_of_a_list_is_told_by_its_place() -> None:
    with pytest.raises(SettingsRefused) as caught:
        read_table("theirs", Options, {"names": ["x", 1]})
    assert caught.value.problems == (("names[1]", "must be a string"),)
