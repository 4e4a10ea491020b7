"""One query in one process: the job, the loop over its micro-batches, and what decides about the next one.

Nothing but the command line imports from here.
"""
