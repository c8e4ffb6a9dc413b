"""Check a file by speedscope's own schema, which its npm package brings, and add its stacks up."""

import json
import pathlib
import sys

import jsonschema
from totals import Totals

package = pathlib.Path(sys.prefix).parent / "js/node_modules/speedscope/dist/release"
schema = json.loads((package / "file-format-schema.json").read_text())
file = json.loads(pathlib.Path(sys.argv[1]).read_text())
jsonschema.validate(file, schema)
totals = Totals()
names = [frame["name"] for frame in file["shared"]["frames"]]
for profile in file["profiles"]:
    assert len(profile["samples"]) == len(profile["weights"])
    assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
    for stack, weight in zip(profile["samples"], profile["weights"]):
        totals.add([names[frame] for frame in reversed(stack)], weight)
totals.print()
