"""Azure: the login to the storage account of a query's ``abfss://`` checkpoint."""

from __future__ import annotations

from pydantic import Field

from millrace_api.model.base import Model
from millrace_api.model.secrets import SecretValue


class AzureSpec(Model):
    """The login to the storage account in which the ``abfss://`` checkpoint of a query is."""

    account_key: SecretValue = Field(
        description="Key of the storage account.", examples=["{secretKeyRef: {name: lake, key: accountKey}}"]
    )
