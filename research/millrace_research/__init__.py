"""What Millrace was designed by: comparisons, simulations and plans on paper. No query needs any of it.

- ``arena``: simulated jobs and other autoscalers' policies (``millrace simulate``).
- ``comparison``: partitioners on recorded streams (``millrace bench partitioners``).
- ``flows``: the capacity of data flows that are written down in YAML (``millrace flow``).
- ``papers``: the comparisons of the papers again.

A checkout has it and images do not. It imports the product, and nothing of the product imports it.
"""
