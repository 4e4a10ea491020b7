"""Objects of queries on the API server: how they are kept, compared with manifests, and changed.

``object_sizes`` bounds what is read of one, and ``kept_object`` is what stays in memory. ``as_applied`` says whether it
is what was applied, and ``applying`` applies it. ``configurations`` are those that drivers have left behind.
"""
