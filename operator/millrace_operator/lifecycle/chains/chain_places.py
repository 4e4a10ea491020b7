"""What the queries of a namespace read and write, indexed so that only queries with a place in common are compared."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from pydantic import ValidationError

from millrace_api.model import topic_patterns
from millrace_api.model.files import path_parts, path_reads
from millrace_api.model.kafka import KafkaConnection
from millrace_api.model.sinks import SinkSpec
from millrace_api.model.sources import SourceSpec

MOST_PLACES = 64
"""Places of one query that are compared: topics and paths that it reads, and as many that it writes."""

MOST_READ_OF_ONE = 16
"""Sources of a query that are listed as readers of another one."""

MOST_WRITTEN = 1000
"""Different topics and folders that queries of a namespace write and that are compared with patterns."""

_MOST_ADDRESSES = 64
"""Brokers of a connection by which clusters are compared."""

MOST_PATTERNS = 128
"""Different patterns, of topics or of paths, that are compared in a namespace."""

_CHARACTERS_OF_PART = 32
"""Characters that a broker, or a part of a path, counts at least."""

_LONGEST_PATTERN = 512
"""Characters of a pattern of paths that is compared; longer ones could take milliseconds."""

Parts = tuple[str, ...]


class ReadTopic(NamedTuple):
    """Topics of a source: one that it names, or those of a pattern."""

    source: str
    topic: str
    is_pattern: bool
    addresses: frozenset[str]

    @property
    def characters(self) -> int:
        """Number of characters that are kept of it."""
        return len(self.topic) + _CHARACTERS_OF_PART * len(self.addresses)


class ReadFiles(NamedTuple):
    """Path of a source."""

    source: str
    path: Parts

    @property
    def is_pattern(self) -> bool:
        """Whether the path may be more than one file or folder."""
        return any(not {"*", "?", "["}.isdisjoint(part) for part in self.path)

    @property
    def characters(self) -> int:
        """Number of characters that are kept of it."""
        return sum(map(len, self.path)) + _CHARACTERS_OF_PART * len(self.path)


class WrittenTopic(NamedTuple):
    """Topic of a sink."""

    topic: str
    addresses: frozenset[str]

    @property
    def characters(self) -> int:
        """Number of characters that are kept of it."""
        return len(self.topic) + _CHARACTERS_OF_PART * len(self.addresses)

    def __str__(self) -> str:
        return f"topic {self.topic}"


class WrittenFiles(NamedTuple):
    """Folder of a sink as the query names it, and its first file of results."""

    folder: str
    file: Parts

    @property
    def characters(self) -> int:
        """Number of characters that are kept of it."""
        return len(self.folder) + sum(map(len, self.file)) + _CHARACTERS_OF_PART * len(self.file)

    def __str__(self) -> str:
        return f"files in {self.folder}"


Read = ReadTopic | ReadFiles
Written = WrittenTopic | WrittenFiles


@dataclass(frozen=True)
class Places:
    """What one query reads and writes."""

    reads: tuple[Read, ...] = ()
    writes: tuple[Written, ...] = ()

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Places:
        """Return the places of a spec, without those of sources and sinks that are invalid."""
        outputs = (spec, *(spec.get("additionalOutputs") or {}).values())
        reads = [
            each for name, document in sorted((spec.get("sources") or {}).items()) for each in _reads(name, document)
        ]
        writes = [each for output in outputs for each in _writes(output.get("sink") or {})]
        return cls(tuple(dict.fromkeys(reads))[:MOST_PLACES], tuple(dict.fromkeys(writes))[:MOST_PLACES])

    @cached_property
    def characters(self) -> int:
        """Number of characters of all places."""
        return sum(each.characters for each in (*self.reads, *self.writes))

    def read_of(self, writer: Places) -> Iterator[tuple[str, str]]:
        """Yield the first sources that read what another query writes, each with the place in words."""
        found = ((read.source, str(write)) for read in self.reads for write in writer.writes if _is_read(read, write))
        yield from dict.fromkeys(islice(found, MOST_READ_OF_ONE))


@dataclass
class PlaceIndex:
    """Queries of a namespace by what they read and write."""

    _readers: defaultdict[object, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Readers by topic, or by path without a pattern."""
    _writers: defaultdict[object, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Writers by topic, by file and by folder."""
    _patterns: defaultdict[Read, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Readers by what they read with a pattern."""
    _written: defaultdict[Written, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Writers by what they write."""

    def add(self, name: str, places: Places) -> None:
        """Add a query."""
        for index, key in self._entries(places):
            most = MOST_PATTERNS if index is self._patterns else MOST_WRITTEN if index is self._written else math.inf
            if key in index or len(index) < most:
                index[key].add(name)

    def remove(self, name: str, places: Places) -> None:
        """Remove a query."""
        for index, key in self._entries(places):
            if key in index:
                index[key].discard(name)
                if not index[key]:
                    del index[key]

    def readers_of(self, places: Places) -> set[str]:
        """Return the queries that may read what a query with these places writes."""
        found: set[str] = set()
        for write in places.writes:
            for key in _keys(write):
                found |= self._readers.get(key, set())
            for read, names in self._patterns.items() if write in self._written else ():
                if _is_read(read, write):
                    found |= names
        return found

    def writers_for(self, places: Places) -> set[str]:
        """Return the queries that may write what a query with these places reads."""
        found: set[str] = set()
        for read in places.reads:
            if read.is_pattern:
                if _unnamed(read) not in self._patterns:
                    continue
                for write, names in self._written.items():
                    if _is_read(read, write):
                        found |= names
            else:
                found |= self._writers.get(_key(read), set())
        return found

    def _entries(self, places: Places) -> Iterator[tuple[defaultdict[Any, set[str]], object]]:
        for read in places.reads:
            yield (self._patterns, _unnamed(read)) if read.is_pattern else (self._readers, _key(read))
        for write in places.writes:
            yield self._written, write
            for key in _keys(write):
                yield self._writers, key


def _unnamed(read: Read) -> Read:
    """Return what a source reads without the source's name, so that queries share it."""
    return read._replace(source="")


def _key(read: Read) -> object:
    return read.topic if isinstance(read, ReadTopic) else read.path


def _keys(write: Written) -> tuple[object, ...]:
    return (write.topic,) if isinstance(write, WrittenTopic) else (write.file, write.file[:-1])


def _is_read(read: Read, write: Written) -> bool:
    if isinstance(read, ReadTopic) and isinstance(write, WrittenTopic):
        named = topic_patterns.matches(read.topic, write.topic) if read.is_pattern else read.topic == write.topic
        return named and not read.addresses.isdisjoint(write.addresses)
    if isinstance(read, ReadFiles) and isinstance(write, WrittenFiles):
        return path_reads(read.path, write.file)
    return False


def _reads(name: str, document: Any) -> Iterator[Read]:
    try:
        source = SourceSpec.model_validate(document, by_name=False)
    except (ValidationError, RecursionError):
        return
    if source.kafka is not None:
        addresses = _addresses(source.kafka)
        for topic in sorted(source.kafka.named_topics):
            yield ReadTopic(name, topic, False, addresses)
        if source.kafka.topic_pattern is not None:
            yield ReadTopic(name, source.kafka.topic_pattern, True, addresses)
    elif source.files is not None:
        read = ReadFiles(name, path_parts(source.files.path))
        if not read.is_pattern or len(source.files.path) <= _LONGEST_PATTERN:
            yield read


def _writes(document: Any) -> Iterator[Written]:
    try:
        sink = SinkSpec.model_validate(document, by_name=False)
    except (ValidationError, RecursionError):
        return
    kafka = sink.kafka or sink.table
    if kafka is not None:
        yield WrittenTopic(kafka.topic, _addresses(kafka))
    elif (files := sink.given.result_files) is not None:
        yield WrittenFiles(files.place, path_parts(files.first_file))


def _addresses(kafka: KafkaConnection) -> frozenset[str]:
    return frozenset(sorted(kafka.addresses)[:_MOST_ADDRESSES])
