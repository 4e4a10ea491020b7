"""``millrace calibrate``: a query on this machine under a few designed plans, timed batch by batch.

``design`` chooses the plans and the records of batches, ``conductor`` goes from one to the next as batches end, and
``core_slots`` keeps cores free. ``turns`` are the sources of the run: they offer a batch when it is its turn, and read
the records again when they are at their end. ``calibration_endpoints`` opens them, and a sink that drops the results,
with which ``calibrate`` runs the query. What was measured goes to the model of the operator's package
(``millrace_support.plan_measurements``).

It imports ``comparison`` for the form of a query that writes nothing, and only ``commands`` imports it.
"""
