"""The syllables of English words, roughly: groups of vowels, without a silent e at the end."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def syllables(word: pa.Array) -> pa.Array:
    """Return how many syllables each word has; NULL for NULL, and 0 for a text without vowels."""
    groups = pc.count_substring_regex(word, "[aeiouy]+")
    silent = pc.match_substring_regex(word, "[aeiouy].*[^aeiouy]e$")
    return pc.subtract(groups, silent.cast(pa.int32()))
