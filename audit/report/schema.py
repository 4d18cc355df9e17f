"""The published JSON Schema of a run document, generated from the records themselves."""

from __future__ import annotations

from typing import Any

from audit.records import SCHEMA_VERSION, Run

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def run_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `run.json` and of `audit compare --json`.

    Of documents as they are written: every key is there, null where it has no content.
    """
    schema = Run.model_json_schema(by_alias=True, mode="serialization")
    for record in (schema, *schema["$defs"].values()):
        if "properties" in record:
            record["required"] = sorted(record["properties"])
    title = f"head-audit run, schema {SCHEMA_VERSION}"
    return {"$schema": DIALECT, **schema, "title": title}
