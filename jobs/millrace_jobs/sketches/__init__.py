"""Small summaries of a stream that can be merged."""
