"""Partitioners in processes of their own: they read the raw topic, place its records, and write them to a routed topic.

No query runs with them yet: ``replica`` is the part between the two topics.
"""
