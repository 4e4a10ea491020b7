"""Sax's model of data flows (paper 002, chapters 3 and 4): capacity, bottlenecks, throughput, fewest tasks."""
