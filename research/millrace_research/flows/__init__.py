"""``millrace flow``: Sax's model of capacity on a data flow whose costs are written in a file.

The model itself is the operator's ``capacity``, which ``millrace model`` applies to running queries.
"""
