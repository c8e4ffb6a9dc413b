#!/usr/bin/env python3
"""Print what is linked into the shipped programs that others wrote: name, version, licence, and each text once.

`third_party.py TRIPLE`. Asks cargo for the crates; the texts are those that lie in their sources."""

import json
import subprocess
import sys
from pathlib import Path

SHIPPED = ("rawstack-recorder", "rawstack-symbolizer")
# C libraries that a static link takes in besides what crates bring along.
STATIC = [
    ("GNU C Library", "LGPL-2.1-or-later"),
    ("elfutils libelf (rawstack-record)", "LGPL-3.0-or-later OR GPL-2.0-or-later"),
    ("zlib (rawstack-record)", "Zlib"),
]
TEXTS = ("license", "licence", "copying", "notice", "unlicense")


def shipped_packages(triple: str) -> list[dict]:
    """The crates that are linked in: reached without going through dependencies of builds and tests."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", triple, "--features",
               "rawstack-recorder/static"]
    metadata = json.loads(subprocess.check_output(command))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    # Macros run in the compiler.
    macros = {package for package in packages if packages[package]["targets"][0]["kind"] == ["proc-macro"]}
    waiting = [package for package in packages if packages[package]["name"] in SHIPPED]
    seen = set(waiting)
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_linked and dependency["pkg"] not in seen | macros:
                seen.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    theirs = [packages[package] for package in seen if packages[package]["source"]]
    return sorted(theirs, key=lambda package: (package["name"], package["version"]))


def texts_of(package: dict) -> list[str]:
    folder = Path(package["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name.lower().startswith(TEXTS))
    return [path.read_text(errors="replace").strip() for path in files]


def main() -> None:
    packages = shipped_packages(sys.argv[1])
    print("rawstack and rawstack-record are built from this, besides their own source:\n")
    for name, licence in STATIC:
        print(f"  {name}: {licence}")
    for package in packages:
        print(f"  {package['name']} {package['version']}: {package['license'] or 'see its text'}, {package['repository']}")
    print("\nTo link them with other versions of the libraries under the LGPL, run `make dist` in the source.")
    users: dict[str, list[str]] = {}
    for package in packages:
        for text in texts_of(package):
            users.setdefault(text, []).append(package["name"])
    for text, names in users.items():
        print(f"\n{'-' * 100}\n{', '.join(dict.fromkeys(names))}\n\n{text}")


if __name__ == "__main__":
    main()
