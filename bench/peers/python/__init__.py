"""The same question with a Python aggregator, as users of each Python engine would write it.

A key's records of ten seconds are counted; the newest time and the three most frequent values are kept. Every update
goes to Kafka. Each program is short, reads its arguments from the command line, and is counted in lines.
"""
