"""Selection of a query's algorithm: profiles of its keys, costs of its stages, and the choice. Uses no Spark."""
