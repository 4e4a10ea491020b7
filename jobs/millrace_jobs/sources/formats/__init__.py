"""Formats of files and messages: bytes to columns of the declared types, and what is rejected, with the reason."""
