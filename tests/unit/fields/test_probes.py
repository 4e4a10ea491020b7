"""The walk over fields and the probes themselves: neither misses a field, nor takes a difference for an effect."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import pytest
from pydantic import Field as Declared

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.base import Model

from .probe import ABSENT, Probe, written
from .walk import Field, fields


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Leaf(Model):
    color: Color | None = None
    is_old: bool = False


class Tree(Model):
    always: Leaf = Leaf()
    maybe: Leaf | None = None
    by_name: dict[str, Leaf] = Declared(default={})
    listed: tuple[Leaf, ...] = ()
    ddl: str = Declared(default="", validation_alias="schema", serialization_alias="schema")


def test_the_walk_comes_to_every_field_of_every_model():
    leaf = [("color", ("red", "blue")), ("isOld", (False, True))]
    places = ["always", "maybe", "byName.*", "listed[]"]
    expected = {(f"tree.{place}.{name}", values) for place in places for name, values in leaf}
    expected |= {(f"tree.{name}", ()) for name in ("maybe", "byName", "listed", "schema")}
    assert {(field.path, field.values) for field in fields(Tree, "tree")} == expected


def test_the_walk_knows_defaults():
    defaults = {field.path: field.default for field in fields(Leaf, "leaf")}
    assert defaults == {"leaf.color": None, "leaf.isOld": False}
    assert Field("a").values == ()


def test_a_document_differs_in_one_field():
    base = {"sources": {"trips": {"parts": [{"a": 1, "b": 2}]}}}
    assert written(base, "sources.*.parts[].a", 3) == {"sources": {"trips": {"parts": [{"a": 3, "b": 2}]}}}
    assert written(base, "sources.*.parts[].a", ABSENT) == {"sources": {"trips": {"parts": [{"b": 2}]}}}
    assert base == {"sources": {"trips": {"parts": [{"a": 1, "b": 2}]}}}


def probe(values, see):
    return Probe("a", {"a": 0, "b": 0}, values, see, read=lambda document: document)


def test_a_field_that_is_ignored_fails_its_probe():
    (said,) = probe((1, 2), lambda document: document["b"]).failures()
    assert said == "a: 1 and 2 make no difference: 0"
    assert list(probe((1, 2), lambda document: document["a"]).failures()) == []


def test_one_of_several_values_that_is_ignored_fails_the_probe():
    said = list(probe((1, 2, 3), lambda document: document["a"] > 2).failures())
    assert said == ["a: 1 and 2 make no difference: False"]


def test_what_differs_each_time_is_no_effect():
    counter = iter(range(9))
    (said,) = probe((1, 2), lambda _: next(counter)).failures()
    assert said.startswith("a: the outcome is another one each time")


def refuse(document):
    if document.get("a", 0) > 1:
        raise MillraceError(Problem(f"{document['a']} is too much"))
    return document.get("a")


def test_a_refusal_is_no_effect():
    assert not any(probe(values, refuse).shows for values in ((2, 3), (1, 2), (ABSENT, 2)))
    assert probe((0, 1, 2), refuse).shows
    assert probe((0, 1, 2), refuse).accepted == [0, 1]


def test_one_value_is_enough_in_a_place_that_cannot_be_empty_or_that_only_one_fits():
    def see(document):
        if document.get("a") != 1:
            raise MillraceError(Problem("1 is missing"))
        return 1

    assert probe((ABSENT, 1), see).shows
    assert replace(probe((1, 2), see), one_fits=True).shows


def test_a_failure_of_the_probe_is_not_taken_for_a_refusal():
    with pytest.raises(ZeroDivisionError):
        list(probe((0, 1), lambda document: 1 / document["a"]).failures())
