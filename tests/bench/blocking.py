"""The row about time blocked: what it costs those who block often."""

from pathlib import Path

from measure import Failed, median, run, spread
from peers import FOLDER, WORKLOADS, Perf, Rawstack
from table import Row

ROUNDS = 200_000
PEER = "perf record -e sched:sched_switch -g"
# It stays on that CPU; the recorder has the others.
PING_PONG = [str(WORKLOADS / "ping_pong"), "1", str(ROUNDS)]


def _printed(stdout: str) -> dict[str, int]:
    words = stdout.split()
    return {name: int(value) for name, value in zip(words[::2], words[1::2])}


def _commands(folder: Path) -> dict[str, list[str]]:
    perf = Perf("perf")
    ours = [str(Rawstack.record), "-q", "--force", "-e", "off-cpu", "-o", str(folder / "blocking.rawstack")]
    commands = {"alone": [], "rawstack": [*ours, "--"], "rawstack -a": [*ours, "-a", "--"]}
    if perf.program:
        theirs = [str(perf.program), "record", "-q", "-e", "sched:sched_switch", "-g"]
        theirs += ["-o", str(folder / "blocking.data")]
        commands[PEER] = [*theirs, "--"]
        commands[f"{PEER} -a"] = [*theirs, "-a", "--"]
    return commands


def off_cpu(repeats: int) -> list[Row]:
    """How much more CPU time two processes take that do nothing but wake each other."""
    folder = FOLDER / "recordings"
    folder.mkdir(parents=True, exist_ok=True)
    taken: dict[str, list[float]] = {}
    rates: list[float] = []
    recorder: list[float] = []
    details: dict[str, object] = {}
    for _ in range(repeats):
        for name, words in _commands(folder).items():
            try:
                usage = run([*words, *PING_PONG])
            except Failed as failure:
                if name.startswith(("alone", "rawstack")):
                    raise
                print(f"{name} failed, once: {str(failure).splitlines()[0]}")
                continue
            told = _printed(usage.stdout)
            taken.setdefault(name, []).append(told["ns"] / 1e9)
            if name == "alone":
                rates.append(told["switches"] / (told["ns"] / 1e9))
            if name == "rawstack":
                recorder.append((usage.cpu - told["ns"] / 1e9) / told["blocked"] * 1e6)
                details["rawstack waits, lost"] = f"{told['blocked']}, {Rawstack().lost(folder / 'blocking.rawstack')}"

    def percent(name: str) -> float | None:
        return (median(taken[name]) / median(taken["alone"]) - 1) * 100 if name in taken else None

    value, base = percent("rawstack"), percent(PEER)
    peers = {name: percent(name) for name in taken if name not in ("alone", "rawstack")}
    details["recorder's own CPU time"] = f"{median(recorder):.2f} us a wait, start included"
    details |= {f"spread {name}": f"{spread(values):.1%}" for name, values in taken.items()}
    return [Row(
        "slow-down of processes that block", "%", value, peers, f"<= 0.5 x {PEER}",
        value <= 0.5 * base if base is not None else None, details,
        [
            f"{repeats} interleaved runs of {ROUNDS} rounds through two pipes on one CPU, "
            f"{median(rates):,.0f} switches a second alone; CPU time of the two processes, median",
        ],
    )]


ROWS = {"off-cpu": off_cpu}
