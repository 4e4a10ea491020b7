"""Pods of a query: what they show, and what is wrong with those that fail, wait or are missing.

``driver_health`` reads one pod of any role; the others judge by it. ``driver_runs`` counts the failures of the driver,
``executor_failures``, ``pending_executors`` and ``partitioners`` look at the other roles, ``missing_pods`` asks why a
pod does not exist, and ``out_of_memory`` says how much more memory pods get that ran out of it. ``status`` reports what
they find, and ``rollback`` acts on it.
"""
