"""The live page of a run, and its report: whether it is well, and if not, why.

A history of events (``history``) becomes findings in order of urgency (``findings``) and figures (``view``), which are
rendered as HTML and SVG (``rendering``, ``charts``) when a client asks (``live_page``). A report is made of a record of
the events (``replay``, ``report``). The folder imports reports of batches, and nothing of the run.
"""
