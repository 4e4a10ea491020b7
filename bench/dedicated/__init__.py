"""Replicas of a partitioner in processes of their own: beside a loop that copies records, and beside ``Inline``."""
