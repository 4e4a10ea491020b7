"""The operator's access to the API server: client, objects, queries, informers and leases.

Imports the rooms below it (lifecycle, leadership, resources, telemetry) and none of the commands.
"""
