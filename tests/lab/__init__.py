"""Real services for tests: got from package registries once, started on loopback, and ended with the tests."""
