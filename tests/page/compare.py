#!/usr/bin/python3
"""Opens the page of `rawstack diff --format html` in a headless Chromium, works it, and compares with `--format json`.

`compare.py RAWSTACK FOLDER CHECK`: FOLDER holds base.rawstack and new.rawstack; CHECK is one of the functions below.
"""

import json
import subprocess
import sys
from pathlib import Path

from selenium.webdriver.common.keys import Keys

from browser import DARK, Page


class Pair:
    """Two archives, and what the command says of them."""

    def __init__(self, rawstack: str, folder: Path) -> None:
        self.rawstack, self.folder = rawstack, folder

    def diff(self, *options: str) -> bytes:
        command = [self.rawstack, "diff", "-q", "--no-cache", "--fail-on", "never", "base.rawstack", "new.rawstack", *options]
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True).stdout

    def page(self, *options: str) -> Path:
        path = self.folder / "diff.html"
        path.write_bytes(self.diff("--format", "html", *options))
        return path

    def json(self) -> dict:
        return json.loads(self.diff("--format", "json"))


def boxes(page: Page) -> dict[str, dict]:
    """Boxes by name; in these archives each function has one."""
    found = page.run("return rawstack.boxes()")
    assert len({box["name"] for box in found}) == len(found), found
    return {box["name"]: box for box in found}


def near(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= 1e-6 * max(abs(wanted), 1)


def numbers(pair: Pair) -> None:
    """Every box has the costs that JSON states, in each view; what is gone and what is new is there."""
    said = pair.json()
    with Page(pair.page()) as page:
        shown = boxes(page)
        for row in said["rows"]:
            box = shown[row["name"]]
            assert near(box["base"], row["base_total"]) and near(box["new"], row["new_total"]), (row, box)
        assert near(shown["All"]["base"], said["total"]["base"]) and near(shown["All"]["new"], said["total"]["new"])
        kinds = {name: box["kind"] for name, box in shown.items()}
        assert kinds["fresh"] == "new" and kinds["vanished"] == "gone" and kinds["parse"] == "both", kinds
        # Gone and new have the width that they had or have.
        assert shown["vanished"]["width"] > 0 and near(shown["vanished"]["width"], shown["vanished"]["base"])
        assert near(shown["fresh"]["width"], shown["fresh"]["new"])
        # The change of a parent is that of all below it.
        callees = [box for name, box in shown.items() if box["depth"] == 2]
        assert near(shown["_stext"]["delta"], sum(box["delta"] for box in callees)), shown
        assert shown["parse"]["matters"] and shown["parse"]["delta"] > 0
        page.click('[data-mode="base"]')
        assert "fresh" not in boxes(page) and near(boxes(page)["parse"]["width"], boxes(page)["parse"]["base"])
        page.click('[data-mode="new"]')
        assert "vanished" not in boxes(page) and near(boxes(page)["parse"]["width"], boxes(page)["parse"]["new"])
        assert page.run("return rawstack.rows().length") == len(said["rows"])
        page.check_quiet()


def working(pair: Pair) -> None:
    """Table, search, zoom by keys and by the path, both themes; what is drawn has more than one colour."""
    said = pair.json()
    with Page(pair.page("--title", "A <b> & B"), theme=DARK) as page:
        assert page.text("title") == "A <b> & B" and page.text("verdict").startswith(said["verdict"])
        lines = page.driver.find_elements("css selector", "#rows tr")
        assert len(lines) == len(said["rows"]) + 1
        verdicts = [line.get_attribute("data-verdict") for line in lines[1:]]
        assert verdicts == [row["verdict"] for row in said["rows"]]
        assert page.colors("flame") > 5
        drawn = int(page.element("flame").get_attribute("data-drawn"))
        page.press("search", "parse")
        assert len(page.driver.find_elements("css selector", "#rows tr")) == 1
        assert int(page.element("flame").get_attribute("data-drawn")) > drawn
        page.run("const s = document.getElementById('search'); s.value = ''; s.dispatchEvent(new Event('input'))")
        page.press("flame", Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
        names = page.path()
        assert names[0] == "All" and len(names) == 3, names
        page.press("flame", Keys.ESCAPE)
        assert len(page.path()) == 2
        page.click("#path button")
        assert page.path() == ["All"]
        lines = page.driver.find_elements("css selector", "#rows tr")
        lines[1].click()
        assert page.run("return document.getElementById('search').value") == said["rows"][0]["name"]
        page.check_quiet()


def hostile(pair: Pair) -> None:
    """Names that are markup or script are shown as they are."""
    with Page(pair.page("--title", "</title><script>window.owned = 1</script>")) as page:
        shown = page.text("rows")
        assert "</script><script>window.owned = 3</script>" in shown, shown
        assert page.run("return document.scripts.length") == 1
        assert page.run("return document.querySelectorAll('img, iframe, object, embed, link, base, svg, a').length") == 0
        assert page.run("return typeof window.owned") == "undefined"
        page.check_quiet()


def main() -> int:
    rawstack, place, check = sys.argv[1:]
    {"numbers": numbers, "working": working, "hostile": hostile}[check](Pair(rawstack, Path(place)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
