"""The row about resolution: many addresses of one big file."""

import random
import re
from pathlib import Path

from measure import Failed, Usage, median, run, spread
from peers import FOLDER, Rawstack, find, install
from table import Row

COUNT = 100_000
SEED = 1


def _code_ranges(file: Path) -> list[tuple[int, int]]:
    """Start and end of each function by the symbol table: every address in between is code."""
    ranges = []
    for line in run(["nm", "-S", "--defined-only", str(file)]).stdout.splitlines():
        words = line.split()
        if len(words) == 4 and words[2] in "tTwW" and int(words[1], 16) > 0:
            start = int(words[0], 16)
            ranges.append((start, start + int(words[1], 16)))
    return ranges


def _random_addresses(file: Path) -> list[int]:
    """Evenly over the code, the same each time."""
    ranges = _code_ranges(file)
    chosen = random.Random(SEED)
    sizes = [end - start for start, end in ranges]
    return [chosen.randrange(start, end) for start, end in chosen.choices(ranges, weights=sizes, k=COUNT)]


def _commands(binary: Path, addresses: list[int]) -> dict[str, tuple[list[str], bool]]:
    """Name, command, and whether the addresses come on standard input."""
    commands: dict[str, tuple[list[str], bool]] = {}
    help_text = run([str(Rawstack.resolve), "symbolize", "--help"]).stdout
    ours = [str(Rawstack.resolve), "symbolize", "--json", "--file", str(binary), "--addresses"]
    commands["rawstack"] = ([*ours, "--no-cache"] if "--no-cache" in help_text else ours, True)
    if addr2line := install("addr2line"):
        commands["addr2line 0.27"] = ([str(addr2line), "-a", "-f", "-i", "-C", "-e", str(binary)], True)
    if llvm := find("llvm-symbolizer-19"):
        commands["llvm-symbolizer 19"] = ([str(llvm), "--inlines", "--obj", str(binary)], True)
    if blazecli := install("blazecli"):
        listed = [f"{address:#x}" for address in addresses]
        commands["blazecli"] = ([str(blazecli), "symbolize", "elf", "--path", str(binary), *listed], False)
    if gnu := find("addr2line"):
        commands["GNU addr2line"] = ([str(gnu), "-a", "-f", "-i", "-C", "-e", str(binary)], True)
    return commands


def _answered(text: str, name: str) -> int:
    """Lines that name a source line: a tool that answers less has less to do."""
    pattern = r'"line":\s*[1-9]' if name == "rawstack" else r"\.(?:rs|c|h|S|s|cc|cpp):[1-9]"
    return len(re.findall(pattern, text))


def resolve(repeats: int) -> list[Row]:
    binary = install("samply")
    if not binary:
        return []
    addresses = _random_addresses(binary)
    listed = FOLDER / "addresses"
    listed.write_text("".join(f"{address:#x}\n" for address in addresses))
    usages: dict[str, list[Usage]] = {}
    details: dict[str, object] = {"file": f"samply 0.13.1, debug=2, {binary.stat().st_size / 1e6:.0f} MB"}
    commands = _commands(binary, addresses)
    for turn in range(repeats):
        for name, (command, piped) in commands.items():
            # GNU addr2line takes minutes: once is enough to see where it stands.
            if name == "GNU addr2line" and turn > 0:
                continue
            out = FOLDER / "answers.txt"
            try:
                usage = run(command, stdin=listed if piped else None, stdout=out, deadline=900)
            except Failed as failure:
                details[f"{name} failed"] = str(failure).splitlines()[-1]
                continue
            usages.setdefault(name, []).append(usage)
            if turn == 0:
                details[f"{name} answers"] = f"{_answered(out.read_text(errors='replace'), name)} lines of source"

    for name, taken in usages.items():
        walls = [usage.wall for usage in taken]
        peak = max(usage.peak_rss for usage in taken) / 2**20
        cpu = median([usage.cpu for usage in taken])
        details[name] = f"best {min(walls):.2f} s, spread {spread(walls):.0%}, CPU {cpu:.2f} s, {peak:.0f} MiB"

    def wall(name: str) -> float | None:
        return median([usage.wall for usage in usages[name]]) if name in usages else None

    value, base = wall("rawstack"), wall("addr2line 0.27")
    met = value <= base if value is not None and base is not None else None
    return [Row(
        f"{COUNT} random addresses", "s", value, {name: wall(name) for name in commands if name != "rawstack"},
        "<= addr2line 0.27", met, details, ["file in the page cache; inlined functions and lines; median"],
    )]


ROWS = {"addresses": resolve}
