"""The papers' own comparisons, rerun with this library on real streams and on Zipf streams.

It runs in the root of a checkout, since it writes pages of ``docs`` with ``tools``.
"""
