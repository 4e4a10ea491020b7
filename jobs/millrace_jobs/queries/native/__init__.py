"""Queries that Spark runs by its own plan, and what is corrected in that plan."""
