"""Documents of queries: from what is written in Python to the names and values of the YAML, and to its text."""

from __future__ import annotations

import os
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin

import yaml

from millrace_api.errors import MillraceError, Problem, quote
from millrace_api.model.base import Model


def document_of(value: Any, annotation: Any) -> Any:
    """Return a value as the YAML has it: plain dicts, lists and scalars, with the fields' names in camelCase.

    Args:
        value: dicts with names in snake_case or camelCase, models, classes of aggregators, functions, paths, and plain
            values.
        annotation: the type of the field that the value is for; names in free mappings, such as options, are kept.

    Raises:
        MillraceError: a class or a function cannot be imported by another process.
    """
    if isinstance(value, Model):
        return value.to_short_document()
    if isinstance(value, type | types.FunctionType):
        return _path_of(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return value.item()
    if isinstance(value, Mapping):
        model = _member(annotation, lambda each: isinstance(each, type) and issubclass(each, Model))
        return _mapping(value, annotation) if model is None else _fields(value, model)
    if isinstance(value, list | tuple):
        sequence = _member(annotation, lambda each: _origin(each) in (tuple, list))
        return [document_of(each, get_args(sequence)[0] if sequence else None) for each in value]
    return value


def _mapping(value: Mapping[str, Any], annotation: Any) -> dict[str, Any]:
    mapping = _member(annotation, lambda each: _origin(each) in (dict, Mapping))
    return {name: document_of(each, get_args(mapping)[1] if mapping else None) for name, each in value.items()}


def _fields(value: Mapping[str, Any], model: type[Model]) -> dict[str, Any]:
    fields = {str(field.alias): field for field in model.model_fields.values()}
    names = {name: str(field.alias) for name, field in model.model_fields.items()}
    document = {}
    for written, each in value.items():
        name = written if written in fields else names.get(written, written)
        field = fields.get(name)
        document[name] = document_of(each, None if field is None else field.annotation)
    return document


def _origin(annotation: Any) -> Any:
    return get_origin(annotation)


def _member(annotation: Any, wanted: Callable[[Any], bool]) -> Any:
    """Return the first type that a field may have and that is wanted; None without one."""
    origin = _origin(annotation)
    if origin is Annotated:
        return _member(get_args(annotation)[0], wanted)
    if origin in (Union, types.UnionType):
        return next((found for each in get_args(annotation) if (found := _member(each, wanted)) is not None), None)
    return annotation if wanted(annotation) else None


def _path_of(code: type | types.FunctionType) -> str:
    """Return ``module:Name`` of a class or a function that Spark's Python processes can import."""
    name, module = code.__qualname__, code.__module__
    if module == "__main__" or "." in name:
        where = "in this notebook or program" if module == "__main__" else "inside another class or function"
        file = f"{code.__name__.strip('<>').lower()}.py"
        hint = f"write it into a module of its own, such as {file}, and import it from there"
        raise MillraceError(Problem(f"{name} is defined {where}, where Spark's processes cannot import it", hint))
    return f"{module}:{name}"


_HINTS = {
    "write its fields below it": "pass a dict of its fields",
    "write names and values below it": "pass a dict of names and values",
}
"""Hints about YAML, and what they are in Python."""

_EXAMPLES = {
    "spec.partitioner": 'pass a dict, such as {"algorithm": "pkg"}',
    "spec.query": "pass SQL as a text, or a dict with sql or python",
}


def problem_in_python(problem: Problem, spec: Mapping[str, Any]) -> Problem:
    """Return a problem of a query with this spec, with what to write in Python instead of YAML."""
    if problem.hint in _HINTS:
        hint = _EXAMPLES.get(problem.field, _HINTS[problem.hint])
        return replace(problem, message=problem.message.replace("is not a mapping", "is not a dict"), hint=hint)
    if problem.field == "spec.partitioner.algorithm":
        path = spec["partitioner"]["algorithm"]
        if isinstance(path, str) and ":" in path:
            name = path.rpartition(":")[2]
            hint = f'write {{"algorithm": "python", "parameters": {{"class": {name}}}}}'
            return replace(problem, message=f"{quote(path)} is a class", hint=hint)
    return problem


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and quotes what other readers take for something else."""


_OTHER = re.compile(r"[-+.\d][\d_.:eExXoObBa-fA-F+-]*|[yYnN]")
"""Texts that some readers of YAML take for a number or for yes and no."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else "'" if _OTHER.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(document: Mapping[str, Any]) -> str:
    """Return a document as YAML, in the order of its fields."""
    return yaml.dump(dict(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
