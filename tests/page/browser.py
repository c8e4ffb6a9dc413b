#!/usr/bin/python3
"""Opens pages of `rawstack flamegraph` in a headless Chromium, works them as people do, and compares with `rawstack report`.

`browser.py RAWSTACK FOLDER CHECK`: FOLDER holds the archive a.rawstack; CHECK is one of the functions below. `open` prints
milliseconds from the start of loading to the first painted picture: `browser.py RAWSTACK PAGE open`.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PATIENCE = 30
LIGHT, DARK = "light", "dark"


class Page:
    """A page in a browser of its own."""

    def __init__(self, path: Path, *, theme: str = LIGHT, width: int = 1440) -> None:
        options = webdriver.ChromeOptions()
        # Tests run as root, where Chromium has no sandbox of its own.
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                         "--force-device-scale-factor=1", f"--window-size={width},900"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.chrome.service.Service("/usr/bin/chromedriver")
        self.driver = webdriver.Chrome(service=service, options=options)
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.url = path.resolve().as_uri()
        self.driver.get(self.url)
        self.ready_ms = int(self.until(lambda: self.run("return document.documentElement.dataset.ready")))

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    def run(self, script: str) -> object:
        return self.driver.execute_script(script)

    def until(self, wanted) -> object:
        """What `wanted` gives, once it gives something."""
        end = time.monotonic() + PATIENCE
        while not (found := wanted()):
            if time.monotonic() > end:
                raise AssertionError(f"did not come; the console says {self.driver.get_log('browser')}")
            time.sleep(0.02)
        return found

    def element(self, name: str):
        return self.driver.find_element(By.ID, name)

    def text(self, name: str) -> str:
        return self.run(f"return document.getElementById('{name}').textContent")

    def click(self, selector: str) -> None:
        self.driver.find_element(By.CSS_SELECTOR, selector).click()

    def first(self, selector: str):
        """The first of such elements, once it is there."""
        return self.until(lambda: self.driver.find_elements(By.CSS_SELECTOR, selector))[0]

    def total(self) -> int:
        return int(self.run("return rawstack.total()"))

    def path(self) -> list[str]:
        return self.run("return [...document.querySelectorAll('#path button')].map((b) => b.title)")

    def press(self, name: str, *keys: str) -> None:
        self.run(f"document.getElementById('{name}').focus()")
        ActionChains(self.driver).send_keys(*keys).perform()

    def colors(self, name: str) -> int:
        """Distinct colours of a canvas, once it is painted."""
        self.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self.run(f"""
            const canvas = document.getElementById('{name}');
            const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            return new Set(new Uint32Array(pixels.buffer)).size;
        """)

    def check_quiet(self) -> None:
        """Nothing was asked of anybody, and nothing went wrong; a refusal by the page's policy would stand here too."""
        said = self.driver.get_log("browser")
        assert said == [], said
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
        assert asked and set(asked) == {self.url}, asked


class Archive:
    """An archive, and what other commands say of it."""

    def __init__(self, rawstack: str, folder: Path) -> None:
        self.rawstack, self.folder = rawstack, folder
        self.symbols = ["--symbol-dir", "debug", "--no-cache", "-q"]

    def page(self, *options: str) -> Path:
        path = self.folder / "a.html"
        command = [self.rawstack, "flamegraph", "a.rawstack", "-o", str(path), *self.symbols, *options]
        subprocess.run(command, cwd=self.folder, check=True)
        return path

    def report(self, *options: str) -> dict:
        command = [self.rawstack, "report", "a.rawstack", "--json", *self.symbols, *options]
        return json.loads(subprocess.run(command, cwd=self.folder, check=True, capture_output=True).stdout)


def rows_of(report: dict) -> list[tuple]:
    return sorted((row["name"], row["module"], row["self"], row["total"], row["inlined"]) for row in report["rows"])


def page_rows(page: Page) -> list[tuple]:
    return rows_of({"rows": page.run("return rawstack.rows()")})


def numbers(archive: Archive) -> None:
    """Numbers are those of report: of all, of a span of time, of a process, a thread and a CPU."""
    with Page(archive.page()) as page:
        whole = archive.report()
        assert page.total() == whole["total"] > 0
        assert page_rows(page) == rows_of(whole)
        lines: dict[tuple, list] = {}
        for row in archive.report("--by", "line")["rows"]:
            lines.setdefault((row["name"], row["module"]), []).append((row["file"], row["line"] or 0))
        places = {(row["name"], row["module"]): row["place"] for row in page.run("return rawstack.places()")}
        spans = 0
        for function, rows in lines.items():
            files, known = {file for file, _ in rows}, [line for _, line in rows if line]
            if len(files) > 1 or None in files or not known:
                continue
            file, first, last = re.fullmatch(r"(.*?):(\d+)(?:–(\d+))?", places[function]).groups()
            assert file in files and int(first) <= min(known), function
            assert max(known) <= int(last or first), function
            spans += last is not None
        assert spans > 0

        heat = page.element("heat")
        width = heat.size["width"]
        drag = ActionChains(page.driver).move_to_element_with_offset(heat, -width // 4, 10)
        drag.click_and_hold().move_by_offset(width // 3, -15).release().perform()
        start, end = page.until(lambda: page.run("return rawstack.span()"))
        part = archive.report("--time", f"{int(start)}ns..{int(end)}ns")
        assert 0 < part["total"] < whole["total"]
        assert page.total() == part["total"]
        assert page_rows(page) == rows_of(part)
        page.press("heat", Keys.ESCAPE)
        assert page.run("return rawstack.span()") is None and page.total() == whole["total"]
        page.press("heat", Keys.ARROW_RIGHT, Keys.SHIFT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.NULL, Keys.ENTER)
        start, end = page.run("return rawstack.span()")
        assert page.total() == archive.report("--time", f"{int(start)}ns..{int(end)}ns")["total"]
        page.click("#time-clear")

        for facet, option, pattern in (("processes", "--pid", r"pid (\d+)"), ("threads", "--tid", r"tid (\d+)"), ("cpus", "--cpu", r"CPU (\d+)")):
            page.click(f'[data-facet="{facet}"] summary')
            label = page.first(f'[data-facet="{facet}"] label')
            number = re.search(pattern, label.text)[1]
            label.click()
            part = archive.report(option, number)
            assert 0 < part["total"] < whole["total"] and page_rows(page) == rows_of(part), facet
            page.click("#reset")
        assert page.total() == whole["total"]
        page.check_quiet()


def working(archive: Archive) -> None:
    """Search, zoom with its history, graphs apart, callers and callees, keys, themes, paper."""
    whole = archive.report()
    with Page(archive.page()) as page:
        assert page.colors("flame") > 20 and page.colors("heat") > 4
        page.press("flame", "/", "inner")
        found = archive.report("--focus", "inner")["total"]
        assert page.text("found").startswith(f"{found / whole['total'] * 100:.2f} %"), page.text("found")
        names = page.run("return [...document.querySelectorAll('.row .name')].map((n) => n.textContent)")
        assert names and all("inner" in name for name in names), names
        page.press("search", Keys.ESCAPE)
        page.press("search", "/^inner|^middle/")
        assert page.text("found").startswith(f"{archive.report('--focus', '^inner|^middle')['total'] / whole['total'] * 100:.2f} %")
        page.press("search", Keys.ESCAPE)
        page.press("search", "/(/")
        assert page.text("found") == "no regular expression"
        page.press("search", Keys.ESCAPE)
        assert page.text("found") == ""

        assert page.path() == ["All"]
        page.press("flame", Keys.ARROW_UP, Keys.ARROW_UP, Keys.ENTER)
        zoomed = page.path()
        assert len(zoomed) == 3, zoomed
        # The box that is zoomed into is as wide as the picture, so a click in its row is a click on it.
        page.click("#back")
        page.until(lambda: page.path() == ["All"])
        page.click("#forward")
        page.until(lambda: page.path() == zoomed)
        page.click("#path li:nth-child(2) button")
        assert page.path() == zoomed[:2]
        page.press("flame", Keys.BACKSPACE)
        page.until(lambda: page.path() == zoomed)
        page.press("flame", "0")
        assert page.path() == ["All"]
        canvas = page.element("flame")
        bottom = canvas.size["height"] // 2
        ActionChains(page.driver).move_to_element_with_offset(canvas, 1 - canvas.size["width"] // 2, bottom - 28).click().perform()
        assert len(page.path()) == 2, page.path()

        for way in ("process", "thread", "cpu"):
            page.run(f"const g = document.getElementById('grouping'); g.value = '{way}'; g.dispatchEvent(new Event('change'));")
            page.press("flame", Keys.ARROW_UP, Keys.ENTER)
            heaviest = archive.report("--by", way)["rows"][0]["name"]
            assert page.path() == ["All", heaviest], (page.path(), heaviest)
        page.click("#reset")

        page.click('[data-mode="icicle"]')
        page.press("flame", Keys.ARROW_DOWN, Keys.ENTER)
        assert len(page.path()) == 2
        page.press("table-body", Keys.ARROW_DOWN, Keys.ENTER)
        first = whole["rows"][0]["name"]
        assert page.text("callers-of") == page.text("callees-of") == first
        assert page.colors("callers") > 5 and page.colors("callees") > 2
        page.press("callers", "?")
        assert page.run("return document.getElementById('help').open") is True
        page.check_quiet()
        printed = page.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]
        assert len(printed) > 20_000
        assert page.text("callers-of") == first
    with Page(archive.page(), theme=DARK, width=600) as page:
        paper = page.run("return getComputedStyle(document.body).backgroundColor")
        assert max(map(int, re.findall(r"\d+", paper))) < 64, paper
        assert page.colors("flame") > 20
        assert page.run("return document.documentElement.scrollWidth") <= 600
        page.check_quiet()


def hostile(archive: Archive) -> None:
    """Names that are markup or script are shown as they are: no element, no script, no request comes of them."""
    title = "</title><script>window.owned = 1</script>"
    with Page(archive.page("--title", title)) as page:
        report = archive.report()
        assert page_rows(page) == rows_of(report)
        assert page.run("return document.title") == title and page.text("title") == title
        shown = page.run("return document.getElementById('table-body').textContent")
        named = [row["name"] for row in report["rows"] if "<" in row["name"]]
        assert len(named) >= 3 and all(name in shown for name in named), (named, shown)
        page.click('[data-facet="processes"] summary')
        page.first('[data-facet="processes"] label')
        assert "<img" in page.run("return document.querySelector('[data-facet=processes]').textContent")
        page.press("flame", Keys.ARROW_UP, Keys.ENTER)
        assert page.run("return document.querySelectorAll('img, iframe, object, embed, link, base, svg, a').length") == 0
        assert page.run("return document.scripts.length") == 1
        assert page.run("return typeof window.owned") == "undefined"
        page.check_quiet()
        # The policy holds for what the page itself would do, too.
        refused = page.driver.execute_async_script("""
            const done = arguments[arguments.length - 1];
            document.addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective));
            const script = document.createElement('script');
            script.textContent = 'window.owned = 2';
            document.body.append(script);
        """)
        assert refused == "script-src-elem" and page.run("return typeof window.owned") == "undefined"


def main() -> int:
    rawstack, place, check = sys.argv[1:]
    if check == "open":
        with Page(Path(place)) as page:
            print(page.ready_ms)
        return 0
    {"numbers": numbers, "working": working, "hostile": hostile}[check](Archive(rawstack, Path(place)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
