"""How often faults befall a job, and at which moments: as the environment says."""

from __future__ import annotations

import os
import random

FAULTS = int(os.environ.get("MILLRACE_FAULTS") or 2)
"""How often each kind of fault befalls a job."""

SEED = int(os.environ.get("MILLRACE_SEED") or random.SystemRandom().randrange(1 << 32))
"""Of everything that is left to chance; a test prints it."""


def chance(name: str) -> random.Random:
    """The random numbers of one test."""
    print(f"\nMILLRACE_FAULTS={FAULTS} MILLRACE_SEED={SEED}")
    return random.Random(f"{SEED} {name}")
