"""Debian's kernels, the newest of each series, out of its package archive. Knows nothing of what they are for."""

import os
import re
import shutil
import subprocess
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

# Suites that hold kernels, beside that of the machine itself: (suite, whether it is in the security archive).
SUITES = [("bullseye-security", True), ("bookworm", False), ("bookworm-security", True), ("trixie-backports", False),
          ("sid", False)]
# Small kernels for virtual machines. From 6.19 on the image is in linux-binary-*, and linux-image-* depends on it.
PACKAGE = re.compile(r"linux-(?:image|binary)-(\d+\.\d+\.\d+\S*-cloud-amd64)")
MAX_AGE_OF_LISTS = 24 * 3600


class Missing(Exception):
    """What is needed is not there; the text says what to do."""


@dataclass(frozen=True)
class Kernel:
    release: str
    package: str
    suite: str

    @property
    def series(self) -> tuple[int, int]:
        major, minor = self.release.split(".")[:2]
        return int(major), int(minor)

    @property
    def rank(self) -> tuple[list[int], bool]:
        """Newer is higher; of one release, the package that holds the image."""
        return [int(number) for number in re.findall(r"\d+", self.release)], self.package.startswith("linux-binary")


def machine_sources() -> list[dict[str, str]]:
    """The machine's own sources, as fields of deb822 whichever form they have."""
    stanzas = []
    for path in sorted(Path("/etc/apt/sources.list.d").glob("*.sources")):
        for text in re.split(r"\n\s*\n", path.read_text()):
            fields = re.findall(r"^([\w-]+):[ \t]*(.*(?:\n[ \t]+.*)*)", text, re.M)
            stanzas.append({name.lower(): value for name, value in fields})
    lists = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*.list"))]
    for path in filter(Path.exists, lists):
        for options, uri, suite in re.findall(r"^deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)", path.read_text(), re.M):
            signed = re.search(r"signed-by=(\S+)", options)
            stanzas.append({"uris": uri, "suites": suite} | ({"signed-by": signed[1]} if signed else {}))
    return stanzas


def own_source(security: bool) -> dict[str, str]:
    """Where this machine has Debian, or its security updates, from."""
    release = dict(re.findall(r'^(\w+)="?(.*?)"?$', Path("/etc/os-release").read_text(), re.M))
    names = {release.get("VERSION_CODENAME", ""), "sid", "unstable", "testing", "stable", "oldstable"} - {""}
    wanted = {name + "-security" if security else name for name in names}
    for stanza in machine_sources():
        if release.get("ID") == "debian" and wanted & set(stanza.get("suites", "").split()):
            return stanza
    raise Missing(f"no source of Debian{' security updates' * security} in /etc/apt: the kernels are Debian's")


class Archive:
    """Debian's package archive, with a state of its own below `folder`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.lists = folder / "lists"
        for made in (self.lists / "partial", folder / "cache/archives/partial", folder / "vmlinuz"):
            made.mkdir(parents=True, exist_ok=True)

    def apt(self, *words: str, cwd: Path | None = None) -> str:
        settings = {"Dir::State::Lists": self.lists, "Dir::Cache": self.folder / "cache",
                    "Dir::Etc::SourceList": self.folder / "debian.sources", "Dir::Etc::SourceParts": "/dev/null",
                    "Dir::Etc::Preferences": "/dev/null", "Dir::Etc::PreferencesParts": "/dev/null",
                    # The user that apt drops to may not reach this folder.
                    "APT::Sandbox::User": "", "Acquire::Languages": "none", "APT::Architecture": "amd64"}
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        run = subprocess.run(["apt-get", "-q", *options, *words], cwd=cwd, text=True, capture_output=True)
        if run.returncode:
            raise Missing(f"apt-get {words[0]} failed: {run.stderr.strip() or run.stdout.strip()}")
        return run.stdout

    def update(self) -> None:
        stamp = self.folder / "updated"
        sources = "\n\n".join(self.stanza(suite, security) for suite, security in SUITES) + "\n"
        path = self.folder / "debian.sources"
        is_same = path.exists() and path.read_text() == sources
        if is_same and stamp.exists() and time.time() - stamp.stat().st_mtime < MAX_AGE_OF_LISTS:
            return
        path.write_text(sources)
        self.apt("update", "--error-on=any")
        stamp.touch()

    @staticmethod
    def stanza(suite: str, security: bool) -> str:
        source = own_source(security)
        lines = ["Types: deb", f"URIs: {source['uris']}", f"Suites: {suite}", "Components: main", "Targets: Packages"]
        if "signed-by" in source:
            lines.append(f"Signed-By: {source['signed-by']}")
        return "\n".join(lines)

    def kernels(self) -> list[Kernel]:
        """The newest of each series, oldest series first."""
        newest: dict[tuple[int, int], Kernel] = {}
        for line in self.apt("indextargets", "--format", "$(CODENAME) $(FILENAME)", "Created-By: Packages").splitlines():
            suite, path = line.split(" ", 1)
            # The lists may be compressed, as the machine's settings say.
            text = subprocess.check_output(["/usr/lib/apt/apt-helper", "cat-file", path], text=True)
            for package in re.findall(r"^Package: (linux-\S+)$", text, re.M):
                if match := PACKAGE.fullmatch(package):
                    kernel = Kernel(match[1], package, suite)
                    newest[kernel.series] = max(kernel, newest.get(kernel.series, kernel), key=lambda one: one.rank)
        return [newest[series] for series in sorted(newest)]

    def vmlinuz(self, kernel: Kernel) -> Path:
        """The bootable image, fetched unless it is there."""
        return self.out_of(kernel.package, "vmlinuz", self.folder / "vmlinuz" / kernel.release)

    def vmlinux(self, kernel: Kernel) -> Path:
        """The kernel's debug information in a folder of its own, some hundred megabytes fetched unless it is there."""
        folder = self.folder / "debug" / kernel.release
        folder.mkdir(parents=True, exist_ok=True)
        return self.out_of(f"linux-image-{kernel.release}-dbg", "vmlinux-", folder / "vmlinux")

    def out_of(self, name: str, start: str, to: Path) -> Path:
        """The file of package `name` whose own name starts with `start`, put at `to`."""
        if to.exists():
            return to
        folder = self.folder / "packages"
        folder.mkdir(exist_ok=True)
        self.apt("download", name, cwd=folder)
        [package] = folder.glob(f"{name}_*.deb")
        part = to.with_suffix(".part")
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as data:
            with tarfile.open(fileobj=data.stdout, mode="r|") as members:
                for member in members:
                    if member.isfile() and os.path.basename(member.name).startswith(start):
                        with part.open("wb") as out:
                            shutil.copyfileobj(members.extractfile(member), out)
        package.unlink()
        if not part.exists():
            raise Missing(f"package {name} holds no {start}*")
        part.rename(to)
        return to
