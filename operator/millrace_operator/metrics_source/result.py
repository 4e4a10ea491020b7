"""Parsing of answers of Prometheus' HTTP API: series of samples, or an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

_Pair = tuple[float, float]
"""Time in seconds and a value, which Prometheus sends as text because JSON has no NaN, +Inf and -Inf."""


@dataclass(frozen=True)
class Sample:
    """Value, which may be NaN or infinite, at a time in seconds since 1970."""

    time: float
    value: float


@dataclass(frozen=True)
class Series:
    """Samples with one set of labels, oldest first; the label ``__name__`` is the metric's name, if it has one.

    A vector has one sample in each series, a matrix any number, and a scalar is one sample without labels. Native
    histograms are left out.
    """

    labels: Mapping[str, str]
    samples: tuple[Sample, ...]


class _Labeled(BaseModel):
    metric: dict[str, str]
    value: _Pair | None = None
    values: list[_Pair] = []


class _Scalar(BaseModel):
    kind: Literal["scalar"] = Field(alias="resultType")
    result: _Pair


class _Table(BaseModel):
    kind: Literal["vector", "matrix"] = Field(alias="resultType")
    result: list[_Labeled]


class _Success(BaseModel):
    status: Literal["success"]
    data: Annotated[_Scalar | _Table, Field(discriminator="kind")]
    warnings: list[str] = []


class _Failure(BaseModel):
    status: Literal["error"]
    kind: str = Field(alias="errorType")
    error: str


_RESPONSE: TypeAdapter[_Success | _Failure] = TypeAdapter(Annotated[_Success | _Failure, Field(discriminator="status")])


class QueryRefusedError(Exception):
    """Prometheus refused a query or warned about its answer; the message is Prometheus' own."""


def read(body: bytes) -> tuple[Series, ...]:
    """Parse an answer of the API and return its series.

    Raises:
        QueryRefusedError: the answer is an error, or has a warning, such as that it is incomplete.
        ValueError: the body is not an answer of the API.
    """
    try:
        response = _RESPONSE.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from None
    if isinstance(response, _Failure):
        raise QueryRefusedError(f"{response.kind}: {response.error}")
    if response.warnings:
        raise QueryRefusedError(f"warning: {'; '.join(response.warnings)}")
    if isinstance(response.data, _Scalar):
        return (Series({}, (Sample(*response.data.result),)),)
    return tuple(_series(found) for found in response.data.result)


def _series(found: _Labeled) -> Series:
    pairs = found.values if found.value is None else [found.value]
    return Series(found.metric, tuple(Sample(*pair) for pair in pairs))
