"""A schema that is said to be compatible takes every value that the old one took."""

import copy
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.crd_compatibility import incompatibilities

Document = dict[str, Any]

NUMBERS = st.integers(-3, 3)
TEXTS = st.text("ab", max_size=3)
INT: Document = {"type": "integer"}
SIZES = {"minItems": st.integers(0, 2), "maxItems": st.integers(0, 3)}
KEYWORDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "integer": {"minimum": NUMBERS, "maximum": NUMBERS, "exclusiveMinimum": st.booleans()},
    "string": {
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(0, 3),
        "pattern": st.sampled_from(["^a", "b$"]),
        "enum": st.lists(TEXTS, min_size=1, max_size=3, unique=True),
    },
    "array": SIZES,
    "object": {
        "minProperties": st.integers(0, 2),
        "maxProperties": st.integers(0, 3),
        "required": st.lists(st.sampled_from("xyz"), unique=True, min_size=1, max_size=2),
        "x-kubernetes-preserve-unknown-fields": st.just(True),
    },
}


def of_type(kind: str, **below: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    return st.fixed_dictionaries({"type": st.just(kind), **below}, optional=KEYWORDS[kind])


def larger(smaller: st.SearchStrategy[Document]) -> st.SearchStrategy[Document]:
    return st.one_of(
        of_type("array", items=smaller),
        of_type("object", properties=st.dictionaries(st.sampled_from("xyz"), smaller)),
        of_type("object", additionalProperties=smaller),
    )


SCHEMAS = st.recursive(of_type("integer") | of_type("string"), larger, max_leaves=3)


def values(schema: Document) -> st.SearchStrategy[Any]:
    """Values of the schema's type, some of which it takes."""
    if schema["type"] == "integer":
        return NUMBERS
    if schema["type"] == "string":
        return st.sampled_from(schema["enum"]) if "enum" in schema else TEXTS
    if schema["type"] == "array":
        return st.lists(values(schema["items"]), max_size=3)
    fields = {name: values(below) for name, below in schema.get("properties", {}).items()}
    rest = dict.fromkeys("xyz", NUMBERS if "properties" in schema else values(schema.get("additionalProperties", INT)))
    return st.fixed_dictionaries({}, optional={**rest, **fields})


@st.composite
def cases(draw: st.DrawFn) -> tuple[Document, Document, list[Any]]:
    """A schema, another one that differs from it in a keyword somewhere, and values that the first one takes."""
    old = draw(SCHEMAS)
    new = copy.deepcopy(old)
    at = draw(st.sampled_from(nodes(new)))
    keywords = KEYWORDS[at["type"]]
    if "properties" in at:
        keywords = keywords | {"properties": st.dictionaries(st.sampled_from("xyz"), SCHEMAS)}
    key = draw(st.sampled_from(sorted(keywords)))
    at[key] = draw(keywords[key])
    stored = draw(st.lists(values(old).map(lambda value: pruned(old, value)), min_size=5, max_size=15))
    return old, new, [value for value in stored if takes(old, value)]


def nodes(schema: Document) -> list[Document]:
    below = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return [schema, *(each for part in below if part is not None for each in nodes(part))]


def pruned(schema: Document, value: Any) -> Any:
    """The value as the API server keeps it: without fields that the schema does not know."""
    if isinstance(value, list) and "items" in schema:
        return [pruned(schema["items"], each) for each in value]
    if not isinstance(value, dict):
        return value
    below = schema.get("properties", {})
    rest = {} if schema.get("x-kubernetes-preserve-unknown-fields") else schema.get("additionalProperties")
    kept = {name: below.get(name, rest) for name in value}
    return {name: pruned(part, value[name]) for name, part in kept.items() if part is not None}


def takes(schema: Document, value: Any) -> bool:
    return bool(jsonschema.Draft4Validator(schema).is_valid(value))


@given(SCHEMAS)
def test_a_schema_is_compatible_with_itself(schema):
    assert incompatibilities(schema, copy.deepcopy(schema)) == []


@given(cases())
@settings(max_examples=300)
def test_a_compatible_schema_takes_every_value_that_the_old_one_took(case):
    old, new, stored = case
    refused = [value for value in stored if not takes(new, value)]
    assert not refused or incompatibilities(old, new) != []
