"""The user's own code by URI and digest: fetched, verified and unpacked before anything of it is loaded.

Imports object stores and no Spark; imported by the session, the settings of Spark and the command line.
"""
