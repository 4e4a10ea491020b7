"""Settings of Hypothesis for this directory: no deadline, since these tests read and write files."""

from hypothesis import settings

settings.register_profile("files", deadline=None, max_examples=60)
settings.load_profile("files")
