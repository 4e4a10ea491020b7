"""Object stores: paths in S3 and Azure, their clients and logins, and what Spark needs to reach them.

``objects`` is what the rest of the job uses. Only ``spark`` knows a query.
"""
