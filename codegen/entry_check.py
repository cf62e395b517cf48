"""Checks values that entry_file.py has read against a JSON schema, as far as entry_schema.py uses JSON Schema. Every
error names file, line, entry and key, the allowed values, and the nearest allowed key or value.
"""
from __future__ import annotations

import re

from entry_file import nearest

_TYPES = {
    "object": (dict, "a mapping"), "array": (list, "a list"), "string": (str, "a text"), "integer": (int, "an integer"),
    "boolean": (bool, "true or false"),
}  # fmt: skip


def check(value, schema, place):
    """Raises EntryError if a value does not match the schema."""
    if "anyOf" in schema:
        branches = [branch for branch in schema["anyOf"] if _is_of_type(value, branch)]
        if not branches:
            expected = " or ".join(_TYPES[_type_of(branch)][1] for branch in schema["anyOf"])
            raise place.error(f"{value!r} is invalid: expected {expected}")
        return check(value, branches[0], place)
    if not _is_of_type(value, schema):
        raise place.error(f"{value!r} is invalid: expected {_TYPES[_type_of(schema)][1]}")
    if "enum" in schema and value not in schema["enum"]:
        raise place.error(f"{value!r} is invalid; {nearest(value, schema['enum'])}")
    if "minimum" in schema and value < schema["minimum"]:
        raise place.error(f"{value} is invalid: expected at least {schema['minimum']}")
    if isinstance(value, str):
        _check_text(value, schema, place)
    elif isinstance(value, list):
        _check_list(value, schema, place)
    elif isinstance(value, dict):
        _check_mapping(value, schema, place)
    return None


def _type_of(schema):
    return schema.get("type", "string")  # an enum of texts


def _is_of_type(value, schema):
    expected = _type_of(schema)
    return isinstance(value, _TYPES[expected][0]) and (expected != "integer" or not isinstance(value, bool))


def _check_text(value, schema, place):
    if len(value) < schema.get("minLength", 0):
        raise place.error("the text is empty")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        raise place.error(f"{value!r} is invalid: expected a text that matches {schema['pattern']}")


def _check_list(value, schema, place):
    if len(value) < schema.get("minItems", 0):
        raise place.error(f"the list has {len(value)} items: expected at least {schema['minItems']}")
    for i, item in enumerate(value):
        check(item, schema["items"], place.at(value, i))


def _check_mapping(value, schema, place):
    properties, other = schema.get("properties", {}), schema.get("additionalProperties", True)
    if other is False:
        for key in value:
            if key not in properties:
                raise place.at(value, key).error(f"unknown key; {nearest(key, properties)}")
    for key in schema.get("required", ()):
        if key not in value:
            raise place.error(f"the key '{key}' is missing")
    if len(value) < schema.get("minProperties", 0):
        raise place.error("the mapping is empty")
    for key, needed in schema.get("dependencies", {}).items():
        for other_key in needed:
            if key in value and other_key not in value:
                raise place.at(value, key).error(f"needs the key '{other_key}', which is missing")
    for rule in schema.get("allOf", ()):
        ((name, condition),) = rule["if"]["properties"].items()
        for key in rule["then"]["required"]:
            if value.get(name) == condition["const"] and key not in value:
                raise place.at(value, name).error(f"{value[name]!r} needs the key '{key}', which is missing")
    for key, item in value.items():
        item_schema = properties.get(key, other)
        if isinstance(item_schema, dict):
            check(item, item_schema, place.at(value, key))
