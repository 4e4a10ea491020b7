"""Sax's batching layer between partitioners and workers (paper 002, sections 3.4 and 4.2): records travel in batches.

``buffers`` assembles output batches for workers, and ``pack_size`` chooses how many records they have. Operators on
both sides see records alone. Of the job it imports the format of blocks, ``pipeline.blocks``, and ``selection``.
"""
