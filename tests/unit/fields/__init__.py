"""Every field of the API, and for each a probe: two queries that differ in it alone, and where the product differs.

``walk`` lists the fields. ``probe`` defines what a probe is. The modules ``of_*`` hold the probes by area.
"""
