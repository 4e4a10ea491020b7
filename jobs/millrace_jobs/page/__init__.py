"""The live page of a run: whether it is well, and if not, why.

A bounded history of batches (``history``) becomes findings in order of urgency (``findings``) and figures (``view``),
which are rendered as HTML and SVG (``rendering``, ``charts``) when a client asks (``live_page``). It imports reports of
batches, and nothing of the run.
"""
