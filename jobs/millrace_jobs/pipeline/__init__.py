"""The data path: source, decode, route, combine, merge, emit."""
