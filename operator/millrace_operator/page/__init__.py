"""The operator's page of its fleet: which queries are not well, worst first, and why.

Who asks is known by a token of the cluster (``sessions``), and sees the queries that the API server lets them list
(``access``). What the operator's cache has of those (``fleet``) becomes findings (``query_findings``) and HTML
(``fleet_view``, ``query_page``) when a reader asks (``server``), and never in between.
"""
