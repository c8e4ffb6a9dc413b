#!/usr/bin/python3
"""Opens an export in speedscope's own page in a headless Chromium, and compares its table with `rawstack report --json`.

`speedscope.py PAGE FILE REPORT [names]`: PAGE is the index.html of speedscope, FILE an export of one thread (the page
shows one at a time), REPORT what `report --json` says of the same samples. `names`: FILE is text of perf script, whose
samples the page weighs by the time between them, so functions alone are compared.
"""

import base64
import json
import re
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PATIENCE = 30
UNITS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}


def amount(text: str) -> float:
    """Nanoseconds of what the page shows: `4.00ms (20%)`."""
    number, unit = re.match(r"([\d.]+)(ns|µs|ms|s)", text).groups()
    return float(number) * UNITS[unit]


def table(page: Path, file: Path) -> dict[str, tuple[str, str]]:
    """Total and self as shown, by function."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--disable-dev-shm-usage",
                     "--allow-file-access-from-files", "--window-size=1600,3000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.chrome.service.Service("/usr/bin/chromedriver")
    driver = webdriver.Chrome(service=service, options=options)
    with tempfile.TemporaryDirectory() as folder:
        # As speedscope's command hands a file to its page.
        script = Path(folder) / "profile.js"
        packed = base64.b64encode(file.read_bytes()).decode()
        script.write_text(f"speedscope.loadFileFromBase64({json.dumps(file.name)}, {json.dumps(packed)})")
        try:
            driver.get(f"{page.resolve().as_uri()}#localProfilePath={script}")
            end = time.monotonic() + PATIENCE
            while True:
                # Key 3 is the view with the table.
                driver.find_element(By.TAG_NAME, "body").send_keys("3")
                rows = driver.find_elements(By.CSS_SELECTOR, "table tr")
                if len(rows) > 1 or time.monotonic() > end:
                    break
                time.sleep(0.2)
            assert len(rows) > 1, driver.get_log("browser")
            cells = [[cell.text for cell in row.find_elements(By.TAG_NAME, "td")] for row in rows]
            return {row[2]: (row[0], row[1]) for row in cells if len(row) == 3}
        finally:
            driver.quit()


page, file, report, *only_names = sys.argv[1:]
shown = table(Path(page), Path(file))
report = json.loads(Path(report).read_text())["rows"]
rows = [row for row in report if row["name"] in shown]
assert len(rows) == len(shown), (shown, report)
# The page makes rows for what can be seen of a long table: functions with most self time.
assert len(shown) >= min(len(report), 20), shown
if not only_names:
    assert report[0]["name"] == rows[0]["name"]
    for row in rows:
        for text, value in zip(shown[row["name"]], (row["total"], row["self"])):
            # Three digits are shown.
            assert abs(amount(text) - value) <= value * 0.006, (row, text)
