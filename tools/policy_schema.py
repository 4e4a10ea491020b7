"""Write the schema of the chart's value ``policy`` into the schema of its values.

``python -m tools.policy_schema`` prints the schema of the values with it, for ``make generate``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from millrace_operator.resources.tenancy_policy import TenancyPolicy

VALUES = Path(__file__).parent.parent / "charts/millrace/values.schema.json"


def main() -> None:
    """Print the schema of the chart's values."""
    schema = json.loads(VALUES.read_text(encoding="utf-8"))
    schema["properties"]["policy"] = policy_schema()
    print(json.dumps(schema, indent=2))


def policy_schema() -> dict[str, Any]:
    """Return the schema of the value ``policy``, from the operator's own model of it."""
    model = TenancyPolicy.model_json_schema(by_alias=True)
    schema: dict[str, Any] = _plain(model["properties"]["policy"], model["$defs"])
    return schema


def _plain(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return a schema without references, alternatives for null, and what only pydantic or an API server reads.

    A mapping whose keys have a pattern has no others, as the model says.
    """
    if isinstance(schema, list):
        return [_plain(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]] | {k: v for k, v in schema.items() if k != "$ref"}
    if "anyOf" in schema:
        schema = schema["anyOf"][0] | {name: value for name, value in schema.items() if name != "anyOf"}
    if "patternProperties" in schema:
        schema = schema | {"additionalProperties": False}
    unread = ("title", "default", "examples", "maximum", "x-kubernetes-validations")
    return {name: _plain(value, definitions) for name, value in schema.items() if name not in unread}


if __name__ == "__main__":
    main()
