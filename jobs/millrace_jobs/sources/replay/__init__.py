"""Recordings as sources, replayed at the pace of their times or at a given one."""
