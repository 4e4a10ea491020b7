"""Selection of a query's algorithm: profiles of its keys, costs of its stages, and the choice.

Imports ``partitioners`` and the rooms below it, and no framework.
"""
