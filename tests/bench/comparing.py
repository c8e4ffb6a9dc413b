"""The row about comparisons: two archives of five runs, their symbols known from before."""

from measure import median, run, spread
from peers import FOLDER, Rawstack, build_example
from resolving import libraries
from table import Row

# Of each archive, in five runs; and of ones with as many in each run.
SAMPLES = 1_000_000
STACKS = 50_000


def diff(repeats: int) -> list[Row]:
    """Time and memory of a verdict."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    maker = build_example("many-samples")
    files = [str(path) for path in libraries()]
    cache = f"XDG_CACHE_HOME={FOLDER / 'diff-cache'}"
    usages = {}
    for samples in (SAMPLES, 5 * SAMPLES):
        pair = [FOLDER / f"diff-{side}.rawstack" for side in ("base", "new")]
        for number, archive in enumerate(pair):
            # The new side has some more of everything.
            count = samples + number * samples // 100
            run([str(maker), str(count), str(STACKS), str(archive), "0", str(FOLDER / "diff.data"), *files], deadline=600)
        command = ["env", cache, str(Rawstack.resolve), "diff", "-q", "--fail-on", "never", *map(str, pair)]
        run(command)
        out = FOLDER / "diff.txt"
        usages[samples] = [run(command, stdout=out, is_family_waited_for=True) for _ in range(repeats)]

    def told(samples: int) -> tuple[float, float]:
        walls = [usage.wall for usage in usages[samples]]
        return median(walls), max(usage.peak_rss for usage in usages[samples]) / 1e6

    value, held = told(SAMPLES)
    more, more_held = told(5 * SAMPLES)
    details: dict[str, object] = {
        "with 1 million samples in each run": f"{more:.2f} s, {more_held:.0f} MB",
        "spread": f"{spread([usage.wall for usage in usages[SAMPLES]]):.0%}",
    }
    notes = [f"two archives of 5 runs and {SAMPLES:,} samples, {STACKS:,} distinct stacks; symbols cached; median"]
    return [
        Row("diff of two archives of 1 million samples", "s", value, {}, "<= 3 s", value <= 3, details, notes),
        Row("memory of that diff", "MB", held, {}, "<= 512 MB", held <= 512, {}, []),
    ]


ROWS = {"diff": diff}
