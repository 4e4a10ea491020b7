"""One query in one process: the job, the loop over its micro-batches, and the decisions about the next one.

Only commands import from here.
"""
