"""What pages have in common: elements, style and script, the verdict, tables, and how they are served.

The live page of a run (``millrace_jobs.page``) and the operator's page of its fleet (``millrace_operator.page``) are
made of these parts.
"""
