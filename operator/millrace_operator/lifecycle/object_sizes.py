"""How much of an object of a tenant's namespace the operator keeps."""

LARGEST_QUERY, LARGEST_OBJECT = 128 << 10, 384 << 10
"""Bytes of JSON of a query and of another object that are kept, without the fields that are dropped.

A query's own objects repeat it: the largest of them quotes its spec as a text.
"""

TOO_LARGE = "tooLarge"
"""Field with the number of bytes, in the place of most others, of an object that is too large."""

NAMESPACE_BYTES = 64 << 20
"""Bytes of JSON that are kept of the queries and objects of one namespace, by default."""
