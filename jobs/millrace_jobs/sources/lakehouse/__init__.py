"""Tables of a lakehouse as sources: the driver plans by the table's log, and tasks read its data files.

Only here, and only in the driver, do sources import ``deltalake`` and ``pyiceberg``.
"""
