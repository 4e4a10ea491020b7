"""From a query to the objects that it needs on the cluster: pure functions, tested against golden files."""
