"""Connections of queries: what is kept of them, and whose driver follows a change next.

``seen_connections`` keeps all of a namespace, and ``referred_connections`` is what one query has of them. After a
change, ``connection_rollouts`` has the order of the queries, and ``connection_turns`` what this means for one driver;
``target`` acts on it.
"""
