"""The results: one row a figure, printed as a table and written as JSON."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Row:
    """One figure: of Rawstack, of its peers from the same run, and the goal."""

    name: str
    unit: str
    rawstack: float | None
    peers: dict[str, float | None]
    goal: str
    met: bool | None
    details: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def number(value: float | None) -> str:
    if value is None:
        return "absent"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) >= 0.1 else f"{value:.4f}"


def ratio(ours: float | None, theirs: float | None) -> str:
    """How often theirs goes into ours: under 1 is better than the peer, in every row."""
    if ours is None or theirs is None or theirs == 0:
        return ""
    return f" ({ours / theirs:.2f}x)"


def print_row(row: Row) -> None:
    verdict = {True: "met", False: "NOT MET", None: "not judged"}[row.met]
    print(f"\n{row.name}  [{row.unit}]")
    print(f"  {'rawstack':<24}{number(row.rawstack):>14}   goal {row.goal}: {verdict}")
    for peer, value in row.peers.items():
        print(f"  {peer:<24}{number(value):>14}{ratio(row.rawstack, value)}")
    for key, value in row.details.items():
        print(f"    {key}: {value}")
    for note in row.notes:
        print(f"    note: {note}")


def write(rows: list[Row], folder: Path, host: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        file = folder / f"{row.name.replace(' ', '-').replace(',', '')}.json"
        file.write_text(json.dumps({"host": host, **asdict(row)}, indent=2) + "\n")
    summary = folder / "results.json"
    summary.write_text(json.dumps({"host": host, "rows": [asdict(row) for row in rows]}, indent=2) + "\n")
    return summary
