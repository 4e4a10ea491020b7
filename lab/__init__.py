"""Real services for tests: made once by ``make lab``, started on loopback, and ended with the tests."""
