"""The rows about resolution: addresses of big files, many and few, cold and known, and a report of many samples."""

import random
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from measure import Failed, Usage, median, run, spread
from peers import FOLDER, Rawstack, build_example, find, install
from table import Row

SEED = 1
# An archive of these many samples; perf gets a part of them, since it takes minutes.
SAMPLES = 10_000_000
STACKS = 200_000
PERF_SAMPLES = 500_000
MODULES = 50
RAWSTACK, ADDR2LINE, BLAZECLI, LLVM = "rawstack", "addr2line 0.27", "blazecli", "llvm-symbolizer 19"
GNU = "GNU addr2line"


def _code_ranges(file: Path) -> list[tuple[int, int]]:
    """Start and end of each function by the symbol table: every address in between is code."""
    ranges = []
    for line in run(["nm", "-S", "--defined-only", str(file)]).stdout.splitlines():
        words = line.split()
        if len(words) == 4 and words[2] in "tTwW" and int(words[1], 16) > 0:
            start = int(words[0], 16)
            ranges.append((start, start + int(words[1], 16)))
    return ranges


def _random_addresses(file: Path, count: int) -> list[int]:
    """Evenly over the code, the same each time."""
    ranges = _code_ranges(file)
    chosen = random.Random(SEED)
    sizes = [end - start for start, end in ranges]
    return [chosen.randrange(start, end) for start, end in chosen.choices(ranges, weights=sizes, k=count)]


@dataclass
class Command:
    """How one tool is asked."""

    words: list[str]
    piped: bool = True  # the addresses come on standard input
    environment: dict[str, str] | None = None  # beside this program's


def _ours(binary: Path, *options: str) -> Command:
    return Command([str(Rawstack.resolve), "symbolize", *options, "--file", str(binary), "--addresses"])


def _commands(binary: Path, addresses: list[int], *, gnu: bool) -> dict[str, Command]:
    commands = {RAWSTACK: _ours(binary, "--no-cache")}
    options = ["-a", "-f", "-i", "-C", "-e", str(binary)]
    if addr2line := install("addr2line"):
        commands[ADDR2LINE] = Command([str(addr2line), *options])
    if llvm := find("llvm-symbolizer-19"):
        commands[LLVM] = Command([str(llvm), "--inlines", "--obj", str(binary)])
    if blazecli := install("blazecli"):
        listed = [f"{address:#x}" for address in addresses]
        commands[BLAZECLI] = Command([str(blazecli), "symbolize", "elf", "--path", str(binary), *listed], False)
    # It takes minutes where there are many.
    if gnu and (found := find("addr2line")):
        commands[GNU] = Command([str(found), *options])
    return commands


def _measure(commands: dict[str, Command], addresses: list[int], repeats: int, details: dict) -> dict[str, list[Usage]]:
    """Run all of them in turn, `repeats` times."""
    listed = FOLDER / "addresses"
    listed.write_text("".join(f"{address:#x}\n" for address in addresses))
    usages: dict[str, list[Usage]] = {}
    for turn in range(repeats):
        for name, command in commands.items():
            # Where it takes long, once is enough to see where it stands.
            if turn > 0 and (name not in usages or usages[name][0].wall > 15):
                continue
            try:
                out = FOLDER / "answers.txt"
                stdin = listed if command.piped else None
                usage = run(command.words, stdin=stdin, stdout=out, deadline=900, is_family_waited_for=True,
                            environment=command.environment)
            except Failed as failure:
                details[f"{name} failed"] = str(failure).splitlines()[-1]
                continue
            usages.setdefault(name, []).append(usage)
    for name, taken in usages.items():
        walls, peak = [usage.wall for usage in taken], max(usage.peak_rss for usage in taken) / 2**20
        cpu = median([usage.cpu for usage in taken])
        details[name] = f"best {min(walls):.3f} s, spread {spread(walls):.0%}, CPU {cpu:.3f} s, {peak:.0f} MiB"
    return usages


def _wall(usages: dict[str, list[Usage]], name: str) -> float | None:
    return median([usage.wall for usage in usages[name]]) if name in usages else None


def _peers(usages: dict[str, list[Usage]], commands: dict[str, Command]) -> dict[str, float | None]:
    return {name: _wall(usages, name) for name in commands if not name.startswith(RAWSTACK)}


def _within(value: float | None, base: float | None, part: float) -> bool | None:
    return value <= part * base if value is not None and base is not None else None


def _samply() -> tuple[Path, dict[str, object]] | None:
    binary = install("samply")
    if not binary:
        return None
    return binary, {"file": f"samply 0.13.1, debug=2, {binary.stat().st_size / 1e6:.0f} MB"}


NOTES = ["file in the page cache; inlined functions and lines, in the layout that addr2line's users know; median"]


def many(repeats: int) -> list[Row]:
    """100,000 addresses of a Rust program: time and memory."""
    if not (found := _samply()):
        return []
    binary, details = found
    addresses = _random_addresses(binary, 100_000)
    commands = _commands(binary, addresses, gnu=False)
    commands["rawstack, JSON"] = _ours(binary, "--no-cache", "--json")
    usages = _measure(commands, addresses, repeats, details)
    value = _wall(usages, RAWSTACK)

    def peak(name: str) -> float | None:
        return max(usage.peak_rss for usage in usages[name]) / 2**20 if name in usages else None

    held = peak(RAWSTACK)
    return [
        Row("100,000 random addresses", "s", value, _peers(usages, commands), f"<= 0.25 x {ADDR2LINE}",
            _within(value, _wall(usages, ADDR2LINE), 0.25), details, NOTES),
        Row("memory for 100,000 random addresses", "MiB", held,
            {name: peak(name) for name in commands if not name.startswith(RAWSTACK)}, f"<= 0.5 x {ADDR2LINE}",
            _within(held, peak(ADDR2LINE), 0.5), {}, ["most that was in memory, mapped parts of the file included"]),
    ]


def some(repeats: int) -> list[Row]:
    """1,000 addresses of the same program, and once more when they are known."""
    if not (found := _samply()):
        return []
    binary, details = found
    addresses = _random_addresses(binary, 100_000)[:1000]
    with tempfile.TemporaryDirectory() as cache:
        commands = _commands(binary, addresses, gnu=False)
        known = _ours(binary)
        # Not by env(1): to start that takes a tenth of the time.
        known.environment = {"XDG_CACHE_HOME": cache}
        run(known.words, stdin=_listed(addresses), environment=known.environment)
        commands["rawstack, known"] = known
        usages = _measure(commands, addresses, repeats, details)
    value, again, base = _wall(usages, RAWSTACK), _wall(usages, "rawstack, known"), _wall(usages, ADDR2LINE)
    peers = _peers(usages, commands)
    return [
        Row("1,000 random addresses", "s", value, peers, f"<= 0.4 x {ADDR2LINE}", _within(value, base, 0.4), details, NOTES),
        Row("1,000 known addresses", "s", again, peers, f"<= 0.05 x {ADDR2LINE}", _within(again, base, 0.05), {},
            ["the same again, answered from the cache; peers keep nothing"]),
    ]


def _listed(addresses: list[int]) -> Path:
    listed = FOLDER / "addresses"
    listed.write_text("".join(f"{address:#x}\n" for address in addresses))
    return listed


def first(repeats: int) -> list[Row]:
    """The latency of one look: 8 addresses."""
    if not (found := _samply()):
        return []
    binary, details = found
    addresses = _random_addresses(binary, 100_000)[:8]
    commands = _commands(binary, addresses, gnu=False)
    usages = _measure(commands, addresses, repeats, details)
    return [_against_all("8 random addresses", usages, commands, 1.0, "fastest", details)]


def _against_all(
    name: str, usages: dict[str, list[Usage]], commands: dict[str, Command], part: float, goal: str, details: dict
) -> Row:
    value, peers = _wall(usages, RAWSTACK), _peers(usages, commands)
    fastest = min((wall for wall in peers.values() if wall is not None), default=None)
    return Row(name, "s", value, peers, goal, _within(value, fastest, part), details, NOTES)


def _vmlinux() -> Path | None:
    """The kernel of the distribution's cloud images with its debug information; some 280 MB are downloaded, once."""
    folder = FOLDER / "kernel"
    folder.mkdir(parents=True, exist_ok=True)
    if there := sorted(folder.glob("vmlinux-*")):
        return there[0]
    depends = run(["apt-cache", "depends", "linux-image-cloud-amd64-dbg"]).stdout.split()
    packages = [word for word in depends if word.startswith("linux-image-") and word.endswith("-dbg")]
    for package in packages[1:]:
        print(f"downloading {package}", flush=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as place:
            Path(place).chmod(0o777)
            subprocess.run(["apt-get", "download", "-q", package], cwd=place, check=True, capture_output=True)
            deb = next(Path(place).glob("*.deb"))
            unpack = f"dpkg-deb --fsys-tarfile {deb} | tar -x -C {place} --wildcards './usr/lib/debug/boot/vmlinux-*'"
            subprocess.run(["bash", "-o", "pipefail", "-c", unpack], check=True)
            for file in Path(place).glob("usr/lib/debug/boot/vmlinux-*"):
                file.rename(folder / file.name)
    return next(iter(sorted(folder.glob("vmlinux-*"))), None)


def kernel(repeats: int) -> list[Row]:
    """20,000 addresses of a kernel."""
    try:
        file = _vmlinux()
    except (Failed, subprocess.CalledProcessError, StopIteration) as failure:
        print(f"vmlinux is absent: {failure}")
        file = None
    if not file:
        return []
    addresses = _random_addresses(file, 20_000)
    details: dict[str, object] = {"file": f"{file.name}, {file.stat().st_size / 1e6:.0f} MB"}
    commands = _commands(file, addresses, gnu=False)
    usages = _measure(commands, addresses, repeats, details)
    return [_against_all("20,000 addresses of a kernel", usages, commands, 0.3, "<= 0.3 x the fastest", details)]


def libraries() -> list[Path]:
    """Shared libraries of this machine, the largest, each once."""
    there = {path.resolve() for path in Path("/usr/lib").rglob("*.so*") if path.is_file()}
    magic = [path for path in there if path.open("rb").read(5) == b"\x7fELF\x02"]
    return sorted(magic, key=lambda path: (-path.stat().st_size, path))[:MODULES]


def samples(repeats: int) -> list[Row]:
    """A report of ten million samples, and of a tenth of them: time, and memory that must not grow."""
    maker = build_example("many-samples")
    whole, tenth, data = (FOLDER / name for name in ("samples.rawstack", "samples-tenth.rawstack", "samples.data"))
    files = [str(path) for path in libraries()]
    run([str(maker), str(SAMPLES), str(STACKS), str(whole), "0", str(data), *files], deadline=600)
    run([str(maker), str(SAMPLES // 10), str(STACKS), str(tenth), str(PERF_SAMPLES), str(data), *files], deadline=600)

    def report(archive: Path) -> list[Usage]:
        command = [str(Rawstack.resolve), "report", "-q", "--no-cache", str(archive)]
        out = FOLDER / "report.txt"
        return [run(command, stdout=out, is_family_waited_for=True) for _ in range(repeats)]

    ours, part = report(whole), report(tenth)
    value = median([usage.wall for usage in ours])
    held, less = (max(usage.peak_rss for usage in usages) / 2**20 for usages in (ours, part))
    peers: dict[str, float | None] = {}
    details: dict[str, object] = {"archive": f"{whole.stat().st_size / 1e6:.0f} MB for {SAMPLES:,} samples"}
    scale = SAMPLES / PERF_SAMPLES
    if perf := find("perf"):
        report_words = [str(perf), "report", "-i", str(data), "--stdio", "-g", "none", "--no-inline"]
        script_words = [str(perf), "script", "-i", str(data), "--no-inline"]
        for name, words in {"perf report": report_words, "perf script": script_words}.items():
            usage = run(words, stdout=FOLDER / "report.txt", deadline=900)
            peers[name] = usage.wall * scale
            details[name] = f"{usage.wall:.1f} s for {PERF_SAMPLES:,} samples, {usage.peak_rss / 2**20:.0f} MiB"
    base = peers.get("perf report")
    return [
        Row("report of 10 million samples", "s", value, peers, "<= 0.1 x perf report", _within(value, base, 0.1), details,
            [f"{STACKS:,} distinct stacks, {MODULES} modules, symbols of their tables; median",
             f"perf reads {PERF_SAMPLES:,} of the samples, its time is multiplied by {scale:g}"]),
        Row("memory of that report", "MiB", held, {}, "<= 256 MiB, as for a tenth of the samples",
            held <= 256 and held <= less * 1.1, {"for a tenth of the samples": f"{less:.0f} MiB"}, []),
    ]


ROWS = {
    "addresses": many,
    "addresses-1000": some,
    "addresses-8": first,
    "kernel-addresses": kernel,
    "samples": samples,
}
