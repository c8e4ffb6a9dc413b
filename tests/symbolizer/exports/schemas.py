"""Check files by our published schemas, with a validator that others wrote.

schemas.py FOLDER SCHEMA FILE KIND [SCHEMA FILE KIND]...; KIND is json, lines or csv. A key that a schema does not tell is
an error here, though readers have to bear it: what we write, we publish.
"""

import csv
import json
import pathlib
import sys

import jsonschema


def closed(schema):
    """The schema that allows no key beside those it tells."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: closed(part) for key, part in schema.items()}
    if "properties" in schema:
        assert "required" in schema
        schema.setdefault("additionalProperties", False)
    return schema


folder, rest = pathlib.Path(sys.argv[1]), sys.argv[2:]
used = set()
for name, path, kind in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
    schema = closed(json.loads((folder / f"{name}.json").read_text()))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    with open(path, newline="") as file:
        if kind == "csv":
            reader = csv.DictReader(file)
            items = list(reader)
            assert reader.fieldnames == list(schema["properties"]), reader.fieldnames
        else:
            items = [json.load(file)] if kind == "json" else [json.loads(line) for line in file]
            assert all(item["schema"] == name for item in items)
    assert items
    for item in items:
        validator.validate(item)
    # The schema must not be one that takes anything.
    for key in schema["required"]:
        broken = {other: value for other, value in items[0].items() if other != key}
        assert not validator.is_valid(broken), f"{name}: {key} may be missing"
        assert not validator.is_valid({**items[0], key: []}) or isinstance(items[0][key], list), f"{name}: {key}"
    used.add(name)
assert used == {path.stem for path in folder.glob("*.json")}, "a schema is not tested"
