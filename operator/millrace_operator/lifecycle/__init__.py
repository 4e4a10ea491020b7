"""Reconciliation of queries: observe, compute the next step, write the status, act; and scaling, which decides sizes.

The way through: ``observation_cache`` keeps what the watches report, and ``reconcile`` takes an ``observed_query`` out
of it. ``step`` says what comes next, as ``actions``: ``target`` has the spec to run, by ``rollback`` the last
healthy one, ``next_plan`` has the plan, and ``status`` what is reported. Then ``reconcile`` writes the status and acts.
What these need to know of one subject is in a folder: ``objects``, ``pods``, ``connections``, ``chains``, and
``autoscaling``, which has a loop of its own.

It imports resources, scaling, metrics_source and telemetry. The API server is behind ``reconcile.Queries`` and
``reconcile.Objects``, which ``kube`` implements.
"""
