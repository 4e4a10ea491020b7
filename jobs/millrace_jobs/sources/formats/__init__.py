"""Formats of files and messages: decoding of bytes to columns of the declared types; bad records get a reason."""
