"""Checks the built site: links, and horizontal scrolling in headless Chromium, from phone to wide screen; writes screenshots.

    check_site.py HTML [--browser chromium] [--screenshots FOLDER] [--only TEXT]

Exit status: 0 no finding, 1 findings, 2 the browser does not run.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import re
import subprocess
import sys
import tempfile
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

WIDTHS = {"desktop": 1280, "phone": 390}  # of screenshots
MEASURED = (*WIDTHS.values(), 768, 1010, 1600)  # each layout of the theme and of _static/site.css
# Loads each page in a frame of each width, and writes the widths of the pages and of their widest elements as JSON.
MEASURE = """<!doctype html><title>running</title><body><pre id=out></pre><script>
const pages = PAGES, widths = WIDTHS, found = [];
function load(url, width) {
  return new Promise(resolve => {
    const frame = document.createElement("iframe");
    frame.style.width = width + "px"; frame.style.height = "900px"; frame.src = url;
    frame.onload = () => {
      const root = frame.contentDocument.documentElement;
      const wide = root.scrollWidth > root.clientWidth + 1;
      let cause = "";
      if (wide) for (const element of root.querySelectorAll("main *, article *"))
        if (element.getBoundingClientRect().right > root.clientWidth + 1) { cause = element.tagName + " " + element.className; break; }
      found.push([url, width, root.scrollWidth, root.clientWidth, cause]);
      frame.remove(); resolve();
    };
    document.body.append(frame);
  });
}
(async () => {
  for (const page of pages) for (const width of widths) await load(page, width);
  document.getElementById("out").textContent = JSON.stringify(found);
  document.title = "done";
})();
</script>"""


class _Page(HTMLParser):
    """The links of a page, and the names that links may point to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.names |= {attrs[key] for key in ("id", "name") if attrs.get(key)}
        self.links += [attrs[key] for key in ("href", "src") if attrs.get(key)]


def broken_links(site):
    """Yields a message for each link to a missing file or a missing place in a file of the site."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:|//", link):
                continue
            target, anchor = urldefrag(link)
            file = (path.parent / unquote(target.partition("?")[0])).resolve() if target else path
            if not file.exists():
                yield f"{path.relative_to(site)}: {link}: no such file"
            elif anchor and file in pages and unquote(anchor) not in pages[file].names:
                yield f"{path.relative_to(site)}: {link}: no such place in the page"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def serve(site):
    """Starts a server of the folder on a free port and returns it."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def browser(program, folder, *arguments):
    """Runs the browser once and returns its standard output."""
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise OSError(f"{program}: exit status {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


def too_wide(program, site, pages, folder):
    """Yields a message for each page that scrolls horizontally at one of the widths."""
    measure = site / "_measure.html"
    measure.write_text(MEASURE.replace("PAGES", json.dumps(pages)).replace("WIDTHS", json.dumps(MEASURED)), encoding="utf-8")
    server = serve(site)
    try:
        url = f"http://127.0.0.1:{server.server_port}/_measure.html"
        text = browser(program, folder, "--virtual-time-budget=600000", "--dump-dom", url)
    finally:
        server.shutdown()
        measure.unlink()
    found = re.search(r'<pre id="out">(.*?)</pre>', text, re.S)
    if not found or not found[1]:
        raise OSError(f"{program}: the pages were not measured: {text[:300]}")
    rows = json.loads(found[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))
    if len(rows) != len(pages) * len(MEASURED):
        raise OSError(f"{program}: {len(rows)} of {len(pages) * len(MEASURED)} pages were measured")
    for page, width, scrolls, client, cause in rows:
        if scrolls > client + 1:
            yield f"{page}: {scrolls} pixels at a width of {width}: {cause or 'unknown element'}"


def screenshots(program, site, pages, folder, out):
    """Writes a picture of each page at each width."""
    out.mkdir(parents=True, exist_ok=True)
    for page in pages:
        for name, width in WIDTHS.items():
            # Chromium's window has at least 500 pixels; a frame has any width.
            frame = out / "frame.html"
            frame.write_text(f'<body style="margin:0"><iframe src="{(site / page).as_uri()}" style="border:0;width:{width}px;height:1800px">')
            file = out / f"{page.removesuffix('.html').replace('/', '-')}-{name}.png"
            browser(program, folder, f"--screenshot={file}", f"--window-size={max(width, 500)},1800", frame.as_uri())
            frame.unlink()


def main() -> int:
    """Checks the site and prints the findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("--browser", default="chromium")
    parser.add_argument("--screenshots", type=Path)
    parser.add_argument("--only", default="", help="a part of the names of pages")
    options = parser.parse_args()
    site = options.site.resolve()
    pages = [str(path.relative_to(site)) for path in sorted(site.rglob("*.html")) if options.only in str(path)]
    pages = [page for page in pages if "_static" not in page and "_measure" not in page]
    findings = list(broken_links(site))
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            findings += too_wide(options.browser, site, pages, folder)
            if options.screenshots:
                screenshots(options.browser, site, pages, folder, options.screenshots.resolve())
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"check_site.py: error: {error}", file=sys.stderr)
        return 2
    for finding in findings:
        print(finding)
    print(f"{len(pages)} pages at {len(MEASURED)} widths: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
