"""The Ctrl-C handler around the start of Spark, which replaces it."""

import signal

import pytest

from millrace_jobs.process.signals import interrupt_handler_kept


def _fail_to_start_spark():
    with interrupt_handler_kept():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise RuntimeError("Spark does not start")


def test_the_handler_of_ctrl_c_is_restored_even_if_spark_does_not_start():
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(RuntimeError, match="does not start"):
            _fail_to_start_spark()
        assert signal.getsignal(signal.SIGINT) == before
    finally:
        signal.signal(signal.SIGINT, before)
