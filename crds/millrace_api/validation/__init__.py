"""Validation of files and objects: all problems at once, each with its position and what to write instead."""
