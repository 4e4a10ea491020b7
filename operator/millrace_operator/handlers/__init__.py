"""Event handlers: they store what was observed and queue the affected query. One file per kind."""
