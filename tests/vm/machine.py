"""A machine in QEMU, emulated in software, that lives in its initramfs only. Knows nothing of what it is to show."""

import base64
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
# Far more than a boot takes on a busy host.
TIMEOUT = 300


@dataclass
class Said:
    """How one command in the machine ended."""

    code: int
    hundredths: int  # of a second that it took, as the machine counts
    lines: list[str] = field(default_factory=list)


@dataclass
class Outcome:
    release: str
    said: dict[str, Said]
    archives: dict[str, bytes]
    seconds: float


def make_initramfs(folder: Path, programs: list[Path], texts: dict[str, str]) -> Path:
    """busybox, `programs`, files with these `texts` and the init script beside this file, packed."""
    root = folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    for made in ("bin", "dev"):
        (root / made).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), root / "bin/busybox")
    shutil.copy(HERE / "init", root / "init")
    for program in programs:
        # Stripped: what is named later was not in the machine.
        subprocess.run(["strip", "-o", root / "bin" / program.name, program], check=True)
    for name, text in texts.items():
        (root / name).write_text(text)
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    packed = folder / "initramfs"
    with packed.open("wb") as out:
        subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], input=names.encode(), cwd=root, stdout=out, check=True)
    return packed


def boot(vmlinuz: Path, initramfs: Path, log: Path) -> Outcome:
    """Run until it ends. The console goes to `log`, what it gives out beside it."""
    given = log.with_suffix(".given")
    given.write_bytes(b"")
    words = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "512M",
             "-kernel", vmlinuz, "-initrd", initramfs, "-append", "console=ttyS0 panic=-1 quiet",
             "-nodefaults", "-no-reboot", "-display", "none", "-monitor", "none",
             "-serial", f"file:{log}", "-serial", f"file:{given}"]
    start = time.monotonic()
    try:
        subprocess.run(words, stdin=subprocess.DEVNULL, timeout=TIMEOUT, check=True)
    except subprocess.TimeoutExpired:
        pass  # what it said until then tells
    seconds = time.monotonic() - start
    release, said = read_console(log.read_text(errors="replace"))
    return Outcome(release, said, read_archives(given.read_text(errors="replace")), seconds)


def read_console(text: str) -> tuple[str, dict[str, Said]]:
    release, said, last = "", {}, None
    for line in text.replace("\r", "").splitlines():
        # The firmware leaves its own signs before the first line.
        if match := re.search(r"@ kernel (\S+)$", line):
            release = match[1]
        elif match := re.fullmatch(r"@ (\S+) (\d+) (\d+)", line):
            last = said[match[1]] = Said(int(match[2]), int(match[3]))
        elif line.startswith("| ") and last:
            last.lines.append(line[2:])
    return release, said


def read_archives(text: str) -> dict[str, bytes]:
    found = re.findall(r"^archive (\S+)\n(.*?)^end$", text.replace("\r", ""), re.M | re.S)
    return {name: base64.b64decode(data) for name, data in found}
