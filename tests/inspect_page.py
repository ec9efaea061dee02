#!/usr/bin/python3
"""The page of `kvlease serve` in headless Chromium: tests/inspect_page.py KVLEASE [SCREENSHOT]

First the page over a script of snapshots, which this file serves, and which can say anything; then over a real
`kvlease serve` whose backend hangs. Prints "SKIP: ..." where Chromium or selenium is missing."""
import http.server, json, os, shutil, socket, subprocess, sys, tempfile, threading, time, urllib.request

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
except ImportError:
    sys.exit(print("SKIP: no python3-selenium"))
chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
if not chromium or not driver:
    sys.exit(print("SKIP: no chromium, or no chromium-driver"))
kvlease = os.path.abspath(sys.argv[1])
screenshot = sys.argv[2] if len(sys.argv) > 2 else None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(what, ready, within=15):
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            value = ready()
            if value:
                return value
        except Exception:  # the page is being drawn anew
            pass
        time.sleep(0.05)
    raise AssertionError(f"not within {within} s: {what}")


def start_serve(port, directory, *more):
    serve = subprocess.Popen([kvlease, "serve", "--socket", f"{directory}/s", "--tcp", f"127.0.0.1:{port}", "--quiet",
                              *more], stderr=subprocess.DEVNULL)
    until("serve answers", lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/snapshot", timeout=2).read())
    return serve


def stop(process):
    process.kill()
    process.wait()


class Script(http.server.BaseHTTPRequestHandler):
    """Serves the page, and what `answers` holds."""
    page, answers = b"", {}
    protocol_version = "HTTP/1.0"  # no connection outlives the server

    def do_GET(self):
        path = self.path.split("?")[0]
        known = path == "/" or path in self.answers
        body = self.page if path == "/" else json.dumps(self.answers.get(path, {"error": "unknown"})).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8" if path == "/" else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = allow_reuse_address = True

    def run(self):
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self


def snapshot(**more):
    slots = "A" * 4 + "L" * 3 + "Q" + "." * 504
    return {"schema_version": 1, "runtime": "1", "taken": "2026-01-01T00:00:00.000Z", "uptime_seconds": 90,
            "health": "held", "draining": False, "fatal": None, "exposure_bytes": 0, "operations_total": 2,
            "leases_total": 2,
            "actors": [{"kind": k, "state": "up", "answered": True, "age_seconds": 0, "mailbox": 0, "handled": 10,
                        "busy_seconds": 0.1, "oldest_unanswered_seconds": None}
                       for k in ("manager", "lender", "deadline_arbiter")] +
                      [{"kind": "backend", "state": "stuck", "answered": False, "age_seconds": 2.5, "mailbox": 17,
                        "handled": 33, "busy_seconds": 0.1, "oldest_unanswered_seconds": 2.4}],
            "pools": [{"name": "kvlease-part-0", "slot_bytes": 16384, "total": 512, "free": 504, "lent": 3,
                       "awaiting_proof": 4, "quarantined": 1, "map": slots}],
            "operations": [
                {"id": "1.7", "way": "fetch", "request": "1.3", "lease": "1.5", "outcome": "failed(transfer timeout)",
                 "access": "unproven", "copies": "not started", "proof": "", "age_seconds": 12,
                 "outcome_age_seconds": 7, "deadline_in_seconds": -7, "fatal_in_seconds": 30,
                 "reasons": ["backend_end_unproven"]},
                {"id": "1.9", "way": "publish", "request": "1.4", "lease": "1.6", "outcome": "", "access": "running",
                 "copies": "complete", "proof": "", "age_seconds": 0.8, "outcome_age_seconds": None,
                 "deadline_in_seconds": 4.2, "fatal_in_seconds": None, "reasons": ["backend_access_running"]}],
            "leases": [{"id": "1.5", "way": "fetch", "request": "1.3", "state": "<b>awaiting</b>", "rows": 4,
                        "bytes": 65536, "age_seconds": 13, "reasons": ["backend_end_unproven"]}],
            "owners": [], "registrations": [{"part": "kvlease-part-0", "state": "registered", "reason": "",
                                             "age_seconds": 90}],
            "providers": [{"uri": "memory:", "proofs": ["terminal_status"], "attempts": 2, "workers_busy": 1,
                           "workers": 2, "units": {"hit": 40, "miss": 3, "failed": 1}}],
            "devices": [{"name": "host", "pending": 0, "copies": 12, "bytes": 49152, "unproven": 0, "lost": ""}],
            "holds": ["hold 1.1"], **more}


def open_browser(directory):
    o = webdriver.ChromeOptions()
    o.binary_location = chromium
    for a in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
              "--disable-background-networking", "--disable-component-update", f"--user-data-dir={directory}/chromium"):
        o.add_argument(a)
    o.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service(driver), options=o)


def text(b, selector):
    return b.find_element(By.CSS_SELECTOR, selector).text


def complaints(b, restarting=False):
    """What stands in the console; that a connection is refused while a server restarts is the browser's own line."""
    return [e["message"] for e in b.get_log("browser")
            if e["level"] in ("SEVERE", "WARNING") and not (restarting and "net::ERR_" in e["message"])]


def fits(b, width):
    b.set_window_size(width, 900)
    b.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                      {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    until(f"the page is {width} px wide", lambda: b.execute_script("return innerWidth") == width)
    wide = b.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width, f"at {width} px the page is {wide} px wide"
    for part in ("#pools canvas", "#operations .op", "#actors tr"):
        assert b.find_element(By.CSS_SELECTOR, part).is_displayed(), part


def scripted(b, page):
    port = free_port()
    Script.page, Script.answers = page, {"/snapshot": snapshot(), "/why/operation/1.7": {
        "schema_version": 1, "about": {"kind": "operation", "id": "1.7"}, "found": True, "state": "held",
        "outcome": "failed(transfer timeout)", "outcome_age_seconds": 7, "holders": [
            {"reason": "backend_end_unproven", "what": "lease 1.5", "evidence": "access end of attempt 1.12",
             "from": "provider memory:", "age_seconds": 12, "last_evidence": "poll_access: unproven",
             "last_evidence_age_seconds": 0.6, "next": "fatal expiry of the grace", "next_in_seconds": 30}],
        "safe": ["retry the proof of operation 1.7"], "unknown": [], "facts": {}}}
    server = Server(("127.0.0.1", port), Script).run()
    b.get(f"http://127.0.0.1:{port}/")
    until("a held operation", lambda: "backend end unproven" in text(b, "#operations"))
    assert text(b, "#health") == "held" and text(b, "#link") == "live"
    assert "4 awaiting proof" in text(b, "#pools") and "stuck" in text(b, "#actors")
    assert "<b>awaiting</b>" in text(b, "#leases"), "what a runtime tells is text, never markup"
    assert len(b.find_elements(By.CSS_SELECTOR, ".op .bar div")) >= 3
    drawn = b.execute_script("""const c = document.querySelector('#pools canvas'), seen = new Set(),
        d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        for (let i = 0; i < d.length; i += 4) if (d[i + 3]) seen.add(d[i] + ',' + d[i + 1] + ',' + d[i + 2]);
        return seen.size""")
    assert drawn == 4, f"the pool map has {drawn} colours for four states"

    before = text(b, ".op .due")
    until("a deadline runs down", lambda: text(b, ".op .due") != before)
    b.find_element(By.CSS_SELECTOR, ".op button").click()
    until("why", lambda: "access end of attempt 1.12, from provider memory:" in text(b, "#why"))
    b.execute_script("window.same = true")
    Script.answers["/snapshot"] = snapshot(health="unproven", exposure_bytes=4711)
    until("an update", lambda: text(b, "#health") == "unproven" and "4711" in text(b, "#facts"))
    assert b.execute_script("return window.same"), "the page was loaded anew"
    for width in (400, 1600):
        fits(b, width)
    assert complaints(b) == []

    server.shutdown()
    server.server_close()
    until("it says that it reconnects", lambda: text(b, "#link") == "reconnecting")
    Script.answers["/snapshot"] = snapshot(health="healthy", operations=[], operations_total=0)
    server = Server(("127.0.0.1", port), Script).run()
    until("it is live again", lambda: text(b, "#link") == "live" and text(b, "#health") == "healthy")
    assert "1.7" not in text(b, "#operations")
    assert b.execute_script("return window.same"), "the page was loaded anew"
    assert complaints(b, restarting=True) == []
    server.shutdown()
    server.server_close()


def real(b, directory):
    port = free_port()
    hang = ("--faults", "hang=1", "--timeout", "60s")
    serve = start_serve(port, directory, *hang)
    ask = urllib.request.Request(f"http://127.0.0.1:{port}/request", method="POST",
                                 data=json.dumps({"tokens": list(range(1000))}).encode())
    threading.Thread(target=lambda: urllib.request.urlopen(ask, timeout=60), daemon=True).start()
    threading.excepthook = lambda _: None  # it is broken off below
    try:
        b.get(f"http://127.0.0.1:{port}/")
        until("the page is live", lambda: text(b, "#link") == "live")
        seen = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/snapshot", timeout=5))
        if not seen["actors"]:
            return print("NOT RUN: held operation of a real runtime (runtime::inspection() is not there yet)")
        until("a held operation", lambda: "backend access running" in text(b, "#operations"))
        b.execute_script("window.same = true")
        for width in (400, 1600):
            fits(b, width)
        if screenshot:
            b.find_element(By.CSS_SELECTOR, ".op button").click()
            until("why", lambda: "backend_access_running" in text(b, "#why"))
            b.save_screenshot(screenshot)
        assert complaints(b) == []
        stop(serve)
        until("it says that it reconnects", lambda: text(b, "#link") == "reconnecting")
        serve = start_serve(port, directory)
        until("it is live again", lambda: text(b, "#link") == "live" and "none" in text(b, "#operations"))
        assert b.execute_script("return window.same"), "the page was loaded anew"
        said = complaints(b, restarting=True)
        assert said == [], said
    finally:
        stop(serve)


with tempfile.TemporaryDirectory() as directory:
    port = free_port()
    serve = start_serve(port, directory)
    try:
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).read()
    finally:
        stop(serve)
    browser = open_browser(directory)
    try:
        scripted(browser, page)
        print("scripted: passed")
        real(browser, directory)
    finally:
        browser.quit()
print("passed")
