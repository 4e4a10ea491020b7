"""Models of a StreamQuery, its plan and its status: what each field means, and its limits.

The lowest room of the API: it imports none of the others.
"""
