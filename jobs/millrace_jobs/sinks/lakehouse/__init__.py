"""Tables of a lakehouse as sinks: tasks write the data files, and the driver commits them with the batch's number.

Imports no source and no other sink. ``deltalake`` and ``pyiceberg`` are imported only here and by what opens tables
(``millrace_jobs.lakehouse``), and only in the driver.
"""
