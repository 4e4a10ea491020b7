"""How much of an object of a tenant's namespace the operator keeps."""

from __future__ import annotations

from millrace_api.model.streamquery import CANARY_LABEL

from ..resources.names import Owner

LARGEST_QUERY, LARGEST_OBJECT = 128 << 10, 384 << 10
"""Bytes of JSON of a query and of another object that are kept, without the fields that are dropped.

A query's own objects repeat it: the largest of them quotes its spec as a text.
"""

MOST_VALUES_OF_QUERY, MOST_VALUES = 5_000, 10_000
"""Values of a query and of another object that are kept: members of lists and of objects at all levels.

Each of an empty list or object takes 3 bytes of JSON, and 70 of memory once it is decoded.
"""

BYTES_OF_VALUE = 24
"""Bytes that each value counts at least, so that what is decoded takes about five times what is counted."""

OUR_LABELS = frozenset({*Owner("", "", "").labels("role"), CANARY_LABEL})
"""Labels that the operator reads; there may be any number of others, also with the operator's own prefix."""

TOO_MANY_VALUES = "tooManyValues"
"""Field with the number of values, in the place of most others, of an object that has too many."""

TOO_LARGE = "tooLarge"
"""Field with the number of bytes, in the place of most others, of an object that is too large."""

NAMESPACE_BYTES = 64 << 20
"""Bytes of JSON that are kept of the queries and objects of one namespace, by default."""
