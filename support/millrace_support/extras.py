"""The extras of the distribution: which of them installs a package that is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millrace_api.errors import MillraceError, Problem

EXTRAS = {
    "aws_msk_iam_sasl_signer": ("logins at Amazon MSK need", "kafka"),
    "botocore": ("logins at Amazon MSK need", "kafka"),
    "confluent_kafka": ("Kafka needs", "kafka"),
    "deltalake": ("Delta tables need", "lake"),
    "fastavro": ("Avro needs", "kafka"),
    "hive_metastore": ("Hive's catalog needs", "lake"),
    "kopf": ("the operator needs", "operator"),
    "kubernetes": ("commands on a cluster need", "operator"),
    "msgspec": ("commands on a cluster need", "operator"),
    "obstore": ("object stores need", "stores"),
    "psycopg": ("PostgreSQL needs", "postgres"),
    "ptars": ("Protobuf needs", "kafka"),
    "pyiceberg": ("Iceberg tables need", "lake"),
    "pymysql": ("MySQL and MariaDB need", "mysql"),
    "pyroaring": ("deletion vectors of Delta tables need", "lake"),
    "sqlalchemy": ("Iceberg's SQL catalog needs", "lake"),
    "thrift": ("Hive's catalog needs", "lake"),
}
"""What needs a package, and the extra that has it, by the name under which the package is imported."""


def missing_extra(error: ModuleNotFoundError) -> Problem | None:
    """Return the problem to report for a package that no installed extra has, or None if no extra has it."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    needs, extra = EXTRAS[package]
    message = f"{needs} the Python package {package}, which is not installed"
    return Problem(message, f"run: pip install 'millrace[{extra}]'")


@contextmanager
def extras_reported() -> Iterator[None]:
    """Report a missing package of an extra in this block by the extra to install.

    Raises:
        MillraceError: a package of an extra is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        problem = missing_extra(error)
        if problem is None:
            raise
        raise MillraceError(problem) from error


@contextmanager
def dependencies_reported(caller: str) -> Iterator[None]:
    """Report a package that is missing in this block because Millrace was installed without its dependencies.

    Args:
        caller: what needs the package, as users call it.

    Raises:
        MillraceError: a package is not installed.
    """
    try:
        with extras_reported():
            yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise MillraceError(
            Problem(
                f"millrace.{caller} needs the Python package {package}, which is not installed",
                "run: pip install millrace; with NumPy and Numba alone, only Partitioner and check_partitioner work",
            )
        ) from error
