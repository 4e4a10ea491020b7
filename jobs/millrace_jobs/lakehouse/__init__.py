"""What sources and sinks of lakehouse tables share: clients of catalogs and stores, and their errors as sentences.

It may import the clients of databases and object stores, and no source or sink.
"""
