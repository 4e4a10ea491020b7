"""Tables of a lakehouse as sinks and sources find them: catalogs, files, logins, and errors as sentences."""
