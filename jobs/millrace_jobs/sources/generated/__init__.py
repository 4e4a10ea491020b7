"""Generated records as sources: random ones, and those of the NEXMark benchmark. Imports no other source."""
