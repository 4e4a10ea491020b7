"""Small summaries of a stream that can be merged. Imports ``kernels`` only."""
