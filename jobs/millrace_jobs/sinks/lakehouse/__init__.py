"""Tables of a lakehouse as sinks: tasks write the data files, and the driver commits them with the batch's number.

Imports no source, and of the other sinks only the connection to PostgreSQL. Only here are ``deltalake`` and
``pyiceberg`` imported, and only in the driver.
"""
