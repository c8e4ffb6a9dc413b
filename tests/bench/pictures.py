"""The rows about pictures: what a page of a million samples weighs, and how long a browser takes to show it."""

from measure import median, run, spread
from peers import FOLDER, ROOT, Rawstack, build_example
from resolving import libraries
from table import Row

SAMPLES = 1_000_000
STACKS = 50_000


def page(repeats: int) -> list[Row]:
    """From the start of loading to the first painted picture, in a browser that is new each time."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    maker = build_example("many-samples")
    archive, file, data = (FOLDER / name for name in ("page.rawstack", "page.html", "page.data"))
    libraries_read = [str(path) for path in libraries()]
    run([str(maker), str(SAMPLES), str(STACKS), str(archive), "0", str(data), *libraries_read], deadline=600)
    made = run([str(Rawstack.resolve), "flamegraph", "-q", "--no-cache", str(archive), "-o", str(file)])
    browser = [str(ROOT / "tests/page/browser.py"), str(Rawstack.resolve), str(file), "open"]
    opened = [int(run(browser).stdout) / 1000 for _ in range(repeats)]
    size = file.stat().st_size
    details: dict[str, object] = {
        "page": f"{size / 1e6:.2f} MB, the archive {archive.stat().st_size / 1e6:.2f} MB",
        "written": f"in {made.wall:.2f} s, {made.peak_rss / 2**20:.0f} MiB",
        "spread": f"{spread(opened):.0%}",
    }
    value = median(opened)
    notes = [f"{SAMPLES:,} samples, {STACKS:,} distinct stacks, in headless Chromium; median"]
    return [
        Row("opening a page of 1 million samples", "s", value, {}, "<= 5 s", value <= 5, details, notes),
        Row("size of that page", "MB", size / 1e6, {}, "<= 10 MB", size <= 10_000_000, {}, []),
    ]


ROWS = {"page": page}
