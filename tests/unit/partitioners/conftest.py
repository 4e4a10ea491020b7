"""Settings of Hypothesis for this directory: no deadline, since a kernel compiles at its first call."""

from hypothesis import settings

settings.register_profile("kernels", deadline=None)
settings.load_profile("kernels")
