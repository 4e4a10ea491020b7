"""Validation of files and objects: all problems at once, each with its position and what to write instead.

It imports every room of the API but ``crd``.
"""
