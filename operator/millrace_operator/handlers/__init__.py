"""The operator process and its event handlers, which store what was observed and queue the affected query.

Imports every room of the operator but the commands.
"""
