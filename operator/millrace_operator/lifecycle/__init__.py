"""Observe, validate, reconcile: from what a query asks for and what there is to the one next step."""
