"""Formats of files and messages: bytes become columns of the declared types, and bad records get a reason.

Imports no source: a caller decides what happens to bad records.
"""
