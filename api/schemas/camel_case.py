"""Spells the configuration's tables as the API does: the same fields and checks, camelCase keys."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, create_model
from pydantic.alias_generators import to_camel

from mediaserver.settings import revealed

MASK = "**********"
"""The text that stands for a secret in answers."""


class _Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)


@cache
def camelled(table: type[BaseModel], name: str) -> type[BaseModel]:
    """Returns `table` and the tables in it with camelCase keys, named `name` in the OpenAPI document."""
    changed: dict[str, Any] = {}
    for field_name, field in table.model_fields.items():
        annotation = _replaced(field.annotation, name)
        alias = to_camel(field_name.rstrip("_"))
        if annotation is field.annotation and field.alias in (None, alias):
            continue
        own = copy(field)
        own.alias = own.validation_alias = own.serialization_alias = alias  # singular in the file
        if isinstance(own.default, BaseModel):
            inner = next(each for each in (annotation, *get_args(annotation)) if isinstance(each, type))
            own.default = spelt(inner, plain(own.default))
        changed[field_name] = (annotation, own)
    model: type[BaseModel] = create_model(name, __base__=(_Camel, table), __doc__=table.__doc__, **changed)
    return model


def _replaced(annotation: Any, prefix: str) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return camelled(annotation, f"{prefix}{annotation.__name__.removesuffix('Settings')}")
    origin, arguments = get_origin(annotation), get_args(annotation)
    replaced = tuple(_replaced(each, prefix) for each in arguments)
    if replaced == arguments:
        return annotation
    if origin in (Union, UnionType):
        return Union[replaced]  # noqa: UP007 -- made at run time
    return origin[replaced] if origin is not None else annotation


def spelt(model: type[BaseModel], said: Mapping[str, Any], **more: Any) -> BaseModel:
    """Returns the values of a table (`plain`) as a model that `camelled` made of it; `more`: fields that only
    the model has."""
    return model.model_validate({**said, **more}, by_name=True, by_alias=False)


def plain(table: BaseModel) -> dict[str, Any]:
    """Returns the values of a table that were set, by field name, with secrets in clear text."""
    said: dict[str, Any] = revealed(table.model_dump(exclude_unset=True))
    return said


def written(table: BaseModel) -> dict[str, Any]:
    """Returns the values of a table that were set, by camelCase key, with secrets in clear text."""
    said: dict[str, Any] = revealed(table.model_dump(exclude_unset=True, by_alias=True))
    return said
