"""The commands of ``millrace``, by what they do; ``cli`` puts them together.

They import what they need only when they run, so that ``--help`` is quick.
"""
