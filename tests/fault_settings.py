"""The number of faults and the seed of their random choices, from the environment."""

from __future__ import annotations

import os
import random

FAULTS = int(os.environ.get("MILLRACE_FAULTS") or 2)
"""Number of faults of each kind per job."""

SEED = int(os.environ.get("MILLRACE_SEED") or random.SystemRandom().randrange(1 << 32))
"""Seed of all random choices. Each test prints it."""


def chance(name: str) -> random.Random:
    """Return the random numbers of one test."""
    print(f"\nMILLRACE_FAULTS={FAULTS} MILLRACE_SEED={SEED}")
    return random.Random(f"{SEED} {name}")
