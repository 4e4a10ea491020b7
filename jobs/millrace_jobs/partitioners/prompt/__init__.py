"""Prompt (paper 004, Abdelhamid et al., SIGMOD 2020): a micro-batch is counted as it arrives, then cut into blocks."""
