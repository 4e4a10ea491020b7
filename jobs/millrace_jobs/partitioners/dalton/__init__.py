"""Dalton: partitioning policies that are learned from the stream, by one replica or by several together (paper 003).

Zapridou, Mytilinis, Ailamaki: Dalton: Learned Partitioning for Distributed Data Streams (PVLDB 16, 2022). The
modules follow the paper: ``bandit`` is sections 3.1 and 3.2, ``windows`` and ``statistics`` section 3.3,
``placing`` Algorithms 1 and 2, ``cooperative`` section 4.1, ``replica_state`` section 4.2.
"""

from .partitioner import Dalton

__all__ = ["Dalton"]
