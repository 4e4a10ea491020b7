"""A reference interpreter of the Dual Streaming Model, written for reading: the oracle for joins and tables.

It follows M. J. Sax, *Performance Optimizations and Operator Semantics for Streaming Data Flow Programs* (paper 002),
chapters 2.4 and 5, definition by definition, in the paper's words. It looks at whole streams, copies whole tables, and
tries all pairs; nothing in it is fast.

Where the print is wrong, this is what the interpreter does:

- Definitions 68 and 69 look up ``r.k``, which a record of a record stream does not have: ``g(r)`` is meant.
- Equation 5.16 compares a stream with itself: the two streams are meant.
- Definition 73 passes ``agg`` its functions in the other order: grouping comes first, then aggregation.
- The formula for hopping windows gives windows that start before time 0, which Example 16 does not have: they are left out.
"""
