"""One query in one process: the job, the loop over its micro-batches, and what decides about the next one.

Only commands import from here.
"""
