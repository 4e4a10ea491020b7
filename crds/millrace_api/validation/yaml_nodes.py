"""YAML with positions: every value can be traced back to its line, and duplicate keys are errors.

PyYAML's nodes have the positions. ruamel.yaml keeps them beside the values, but takes twice as long, ends at the first
duplicate key, and turns dates and numbers into types of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from millrace_api.errors import MillraceError, Problem

_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """Safe YAML loader without timestamps: as in Kubernetes, ``2026-01-31`` is text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own way
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


MAX_BYTES = 1 << 20
"""Maximum size of a file: PyYAML takes seconds for this size, and minutes for a data file named by mistake."""

_UNQUOTED_SCHEMA = re.compile(r"""\s*schema:\s+[^'"|>\s].*<.*:""")
"""A line with the columns of a source, of which one has fields: their colons are not YAML's."""

_MAX_DEPTH = 64
_MAX_NODES = 100_000
_TOO_COMPLEX = (
    "the document is nested too deeply, or an alias refers to a value that contains it",
    f"write at most {_MAX_DEPTH} levels and {_MAX_NODES} values, aliases included",
)


@dataclass(frozen=True)
class Document:
    """One YAML document: its value, and the node tree with the lines."""

    file: str
    value: Any
    node: yaml.Node

    def line(self, path: Sequence[str | int]) -> int:
        """Return the line (1-based) of the key or item at ``path``, or of the deepest existing part of the path."""
        line, node = _line(self.node), self.node
        for step in path:
            entry = _entry(node, step)
            if entry is None:
                break
            marked, node = entry
            line = _line(marked)
        return line

    def text_line(self, path: Sequence[str | int], line: int) -> int:
        """Return the line of the file that holds the ``line``-th line (1-based) of the text value at ``path``."""
        node = self.node
        for step in path:
            entry = _entry(node, step)
            if entry is None:
                return self.line(path)
            node = entry[1]
        style = node.style if isinstance(node, yaml.ScalarNode) else None
        if style == "|":
            return _line(node) + line  # the text begins after the line with the bar
        # Other styles fold their lines, so only the position of a one-line text is exact.
        return _line(node)


def read_documents(path: Path | str) -> tuple[list[Document], list[Problem]]:
    """Return the documents of a YAML file, in order, and the problems of the file as YAML.

    Raises:
        MillraceError: if the file cannot be read at all.
    """
    file = str(path)
    documents: list[Document] = []
    problems: list[Problem] = []
    text = _text(path)
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is None or _is_empty(node):
                continue
            if _is_too_complex(node):
                problems.append(Problem(*_TOO_COMPLEX, file, _line(node)))
                continue
            problems.extend(_duplicate_keys(node, file))
            documents.append(Document(file, loader.construct_document(node), node))
    except yaml.MarkedYAMLError as error:
        problems.append(_syntax_problem(error, file, text))
    except RecursionError:  # raised by PyYAML before a node exists
        problems.append(Problem(*_TOO_COMPLEX, file))
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.append(Problem(f"is not YAML: {str(error).splitlines()[0]}", "remove the character", file, line))
    if not documents and not problems:
        problems.append(Problem("is empty", "write at least one document", file=file, line=1))
    return documents, problems


def _text(path: Path | str) -> str:
    file = str(path)
    try:
        with Path(path).open(encoding="utf-8") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > MAX_BYTES:
                message = f"is too large: {size:,} bytes, and at most {MAX_BYTES:,} are read"
                raise MillraceError(
                    Problem(message, "write the path of a smaller file, or split it into several", file)
                )
            return stream.read()
    except FileNotFoundError:
        raise MillraceError(Problem("there is no such file", "check the path", file=file)) from None
    except OSError as error:
        raise MillraceError(
            Problem(f"cannot be read: {error.strerror}", "write the path of a file", file=file)
        ) from None
    except UnicodeDecodeError as error:
        raise MillraceError(
            Problem(f"is not text in UTF-8 (byte {error.start})", "save it as UTF-8", file=file)
        ) from None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _entry(node: yaml.Node, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the node with the line and the value node, one step down the path."""
    if isinstance(node, yaml.MappingNode):
        # The last one counts: merged keys come first, and the mapping's own keys override them.
        found = [(key, value) for key, value in node.value if key.value == str(step)]
        return found[-1] if found else None
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None


def _is_too_complex(root: yaml.Node) -> bool:
    """Return whether the document, with aliases expanded, exceeds the limits of depth or size."""
    visited, waiting = 0, [(root, 1)]
    while waiting:
        node, depth = waiting.pop()
        visited += 1
        if depth > _MAX_DEPTH or visited > _MAX_NODES:
            return True
        below = node.value if isinstance(node, yaml.CollectionNode) else ()
        for entry in below:
            waiting.extend((part, depth + 1) for part in (entry if isinstance(entry, tuple) else (entry,)))
    return False


def _duplicate_keys(root: yaml.Node, file: str) -> Iterator[Problem]:
    """Yield every key that a mapping has twice; nodes reached by aliases are checked once."""
    seen: set[int] = set()
    waiting: list[tuple[yaml.Node, str]] = [(root, "")]
    while waiting:
        node, path = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                name = str(key.value)
                field = f"{path}.{name}" if path else name
                if name in lines and key.tag != _MERGE:
                    message = f'"{name}" is given twice, first in line {lines[name]}'
                    yield Problem(message, "keep one of them", file, _line(key), field)
                lines.setdefault(name, _line(key))
                waiting.append((value, field))
        elif isinstance(node, yaml.SequenceNode):
            waiting.extend((item, f"{path}[{i}]") for i, item in enumerate(node.value))


def _syntax_problem(error: yaml.MarkedYAMLError, file: str, text: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    where = f" at column {mark.column + 1}" if mark is not None else ""
    what = " ".join(part for part in (error.context, error.problem) if part)
    line = mark.line + 1 if mark is not None else None
    hint = "check indentation, colons and quotes there"
    lines = text.splitlines()
    if mark is not None and mark.line < len(lines) and _UNQUOTED_SCHEMA.match(lines[mark.line]):
        hint = (
            "write schema: | and the columns on the next line, or put them in quotes: YAML reads their colon as its own"
        )
    return Problem(f"is not valid YAML{where}: {what}", hint, file, line)
