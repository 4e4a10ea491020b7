"""Which algorithm a query should run under: profiles of its keys, costs of its stages, and the choice. No Spark."""
