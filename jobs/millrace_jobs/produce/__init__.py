"""``millrace produce``: filling a Kafka topic from a file or a generator, at a given rate.

Imports sources, sinks and kafka, and no Spark; imported by the command line.
"""
