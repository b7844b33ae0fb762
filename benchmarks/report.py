"""The page of a finished scan: how long it takes to build, how large it is, and how soon a browser shows it.

usage: python benchmarks/report.py OUT [--json FILE]

OUT is best the scan of a large corpus. The page is built three times in this process (the first time includes the
imports) and goes to a temporary folder. The review's index and four of its questions are timed as well. Where Chromium
and playwright are installed, the first contentful paint of three cold loads is measured.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any


def built(out: Path, folder: Path) -> dict[str, Any]:
    """Seconds, bytes, and the peak of this process's memory."""
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        from cleanse.report import write_report  # noqa: PLC0415 - the first import is part of what is measured

        page = write_report(out, folder / "report.html")
        seconds.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": [round(s, 2) for s in seconds], "bytes": page.stat().st_size, "peak_MiB": round(peak)}


def asked(out: Path) -> dict[str, float]:
    """Seconds that the review server needs to start, and to answer."""
    from cleanse.report.listing import Filter, Listing  # noqa: PLC0415 - not part of building the page
    from cleanse.report.scan_facts import ScanFacts  # noqa: PLC0415

    began = time.perf_counter()
    listing = Listing(ScanFacts(out))
    took = {"index": time.perf_counter() - began}
    for name, wanted in (
        ("first page", Filter()),
        ("everything", Filter(state="any")),
        ("search", Filter(state="any", q="the")),
        ("search in vain", Filter(state="any", q="qqqzzz")),
    ):
        began = time.perf_counter()
        listing.page(wanted, {}, 0, 20)
        took[name] = time.perf_counter() - began
    return {name: round(seconds, 3) for name, seconds in took.items()}


def painted(page: Path) -> list[int] | None:
    """Milliseconds to the first contentful paint; None without a browser."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where it is installed
    except ImportError:
        return None
    if chromium is None:
        return None
    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(3):
            tab = browser.new_context().new_page()
            tab.goto(page.as_uri())
            tab.wait_for_selector("article.record")
            tab.wait_for_timeout(300)
            entries = "performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)"
            found += [round(ms) for ms in tab.evaluate(entries)]
        browser.close()
    return found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    records = json.loads((options.out / "summary.json").read_bytes())["counts"]["read"]
    with tempfile.TemporaryDirectory() as folder:
        page = built(options.out, Path(folder))
        paint = painted(Path(folder) / "report.html")
    figures = {"records": records, "page": page, "review_s": asked(options.out), "first_paint_ms": paint}
    seconds = page["seconds"]
    print(f"{records:,} records: page of {page['bytes'] / 1e6:.2f} MB in {seconds[0]:.1f} s, then "
          f"{statistics.median(seconds[1:]):.1f} s; peak {page['peak_MiB']} MiB")  # fmt: skip
    print("review, in seconds: " + ", ".join(f"{name} {took}" for name, took in figures["review_s"].items()))
    print(f"first contentful paint, in ms: {paint or 'no browser here'}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
