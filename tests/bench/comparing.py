"""The rows about comparisons: two archives of five runs, their symbols known from before."""

from pathlib import Path

from measure import Failed, Usage, median, run, spread
from peers import FOLDER, Rawstack, build_example, find
from resolving import libraries
from table import Row

# Of an archive, which has five runs: a million in all, and a million in each run.
SAMPLES = (1_000_000, 5_000_000)
STACKS = 50_000
# A peer that takes longer is told as absent.
PEER_SECONDS = 300
# Where symbols are known from before.
CACHE = {"XDG_CACHE_HOME": str(FOLDER / "diff-cache")}


def archives(samples: int) -> list[Path]:
    """A base, and a new side with some more of everything."""
    maker = str(build_example("many-samples"))
    pair = [FOLDER / f"diff-{side}.rawstack" for side in ("base", "new")]
    files = [str(path) for path in libraries()]
    for archive, count in zip(pair, (samples, samples + samples // 100)):
        data = str(FOLDER / "diff.data")
        run([maker, str(count), str(STACKS), str(archive), "0", data, *files], deadline=600)
    return pair


def repeated(command: list[str], repeats: int) -> list[Usage]:
    """Once for symbols to be known and files to be in memory, then as often as asked."""
    out = FOLDER / "diff.txt"
    run(command, stdout=out, environment=CACHE)
    return [run(command, stdout=out, is_family_waited_for=True, environment=CACHE) for _ in range(repeats)]


def told(usages: list[Usage]) -> tuple[float, float]:
    return median([usage.wall for usage in usages]), max(usage.peak_rss for usage in usages) / 1e6


def pprof(pair: list[Path], export: list[str]) -> Usage | None:
    """What pprof takes for its table of differences, names included already; None with a word of why where it has none."""
    go = find("go")
    if not go:
        return None
    profiles = [archive.with_suffix(".pb.gz") for archive in pair]
    for archive, profile in zip(pair, profiles):
        run([*export, str(archive), "-o", str(profile)], environment=CACHE)
    # The program itself, not what starts it: its memory counts.
    program = run([str(go), "tool", "-n", "pprof"]).stdout.strip()
    command = [program, "-symbolize=none", "-top", f"-diff_base={profiles[0]}", str(profiles[1])]
    try:
        return run(command, stdout=FOLDER / "diff.txt", deadline=PEER_SECONDS, is_family_waited_for=True)
    except Failed as failure:
        print(f"go tool pprof is absent: {failure}")
        return None


def diff(repeats: int) -> list[Row]:
    """Time and memory of a verdict, and of pprof's table of differences of the same samples."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    rawstack = [str(Rawstack.resolve)]
    rows = []
    for samples in SAMPLES:
        pair = archives(samples)
        usages = repeated([*rawstack, "diff", "-q", "--fail-on", "never", *map(str, pair)], repeats)
        wall, held = told(usages)
        walls, sizes = {}, {}
        # Of the smaller pair alone: its samples are added up by then, so more of them would tell nothing new.
        if samples == SAMPLES[0] and (usage := pprof(pair, [*rawstack, "export", "-q", "--format", "pprof"])):
            walls["go tool pprof"], sizes["go tool pprof"] = told([usage])
        name = f"diff of two archives of {samples // 1_000_000} million samples"
        notes = [f"two archives of 5 runs each, {STACKS:,} distinct stacks; symbols cached; median"]
        if walls:
            notes.append("pprof reads samples that are added up and named already, and subtracts: no runs, no verdict; once")
        details: dict[str, object] = {"spread": f"{spread([usage.wall for usage in usages]):.0%}"}
        rows.append(Row(name, "s", wall, walls, "<= 3 s", wall <= 3, details, notes))
        rows.append(Row(f"memory of the {name}", "MB", held, sizes, "<= 512 MB", held <= 512, {}, []))
    return rows


ROWS = {"diff": diff}
