#!/usr/bin/python3
"""`kvlease serve` and `kvlease inspect` as a user has them, two processes: tests/inspect_serve.py KVLEASE

Requests and their counts; each way in which the service ends, and what it reports of each runtime; what `health` says
and with which status. `why` has a test of its own (inspect_why.py)."""
import os, re, signal, stat, subprocess, sys, time

from serving import Service, until

kvlease = os.path.abspath(sys.argv[1])


def tokens(n=1000, first=0):
    return list(range(first, first + n))


# ---- requests

with Service(kvlease, "--instances", "2") as s:
    assert stat.S_IMODE(os.stat(s.path).st_mode) == 0o600
    status, first = s.request(tokens=tokens(), instance=0)
    assert status == 200 and first["blocks"] == {"prompt": 15, "hit": 0, "fetched": 0, "published": 15, "wrong": 0}
    _, second = s.request(tokens=tokens(), instance=1)
    assert second["blocks"] == {"prompt": 15, "hit": 0, "fetched": 15, "published": 0, "wrong": 0}, second
    _, third = s.request(tokens=tokens(), instance=1)
    assert third["blocks"]["hit"] == 15
    assert s.request(tokens=[])[0] == s.request(tokens=[-1])[0] == s.request()[0] == 400
    # What released it is told afterwards, too.
    operation = second["operations"][0]["id"]
    past = s.inspect("--runtime", "1", "why", "operation", operation)
    assert past.returncode == 0 and re.search(r"proof +terminal_status", past.stdout), past
    assert re.search(r"outcome +delivered, ", past.stdout) and re.search(r"held by +nothing", past.stdout), past
    assert subprocess.run([kvlease, "serve", "--socket", s.path], capture_output=True).returncode == 3
    assert subprocess.run([kvlease, "serve", "--socket", s.path + "2", "--tcp", "0.0.0.0:0"],
                          capture_output=True).returncode == 2
    load = [s.in_background(tokens=tokens(1000, i % 10 * 5000)) for i in range(60)]
    s.tell(signal.SIGTERM)
    err = s.ends(0)
    for n in range(2):
        assert re.search(rf"runtime {n} drained in \d+\.\d s: 0 retained, 0 wrong blocks, 0 exposure bytes", err), err
    assert not os.path.exists(s.path)
    assert s.inspect("health").returncode == 3
    for t in load:
        t.join(30)

# ---- the ends

with Service(kvlease, "--faults", "hang=1", "--timeout", "300ms") as s:
    s.in_background(tokens=tokens())
    err = s.ends(70)
    assert re.search(r"fatal: runtime 0: fetch of request \d+\.\d+: transfer timeout; .*ending with status 70", err), err
with Service(kvlease, "--faults", "hang=1", "--timeout", "60s", "--drain", "60s") as s:
    s.in_background(tokens=tokens())
    until("an operation is open", lambda: s.json("ls", "operations").get("operations"))
    s.tell(signal.SIGINT)
    until("it drains", lambda: s.json("health").get("drain"))
    began = time.monotonic()
    s.tell(signal.SIGINT)
    assert "not proven free" in s.ends(130)
    assert time.monotonic() - began < 10
with Service(kvlease, "--faults", "late=0.3,fail=0.1,partial=0.1,stubborn=0.1,reject=0.1,unproven=0.05", "--timeout",
             "10s", "--local-reuse", "off", "--instances", "2") as s:
    for t in [s.in_background(tokens=tokens(1000, i % 10 * 5000)) for i in range(100)]:
        t.join(60)
    s.tell(signal.SIGTERM)
    err = s.ends(0)
    assert len(re.findall(r"drained in .*: 0 retained, 0 wrong blocks, 0 exposure bytes; faults struck: .*late", err)) == 2
# Two that wait for evidence do not wait one after the other.
with Service(kvlease, "--faults", "hang=1", "--timeout", "60s", "--drain", "2s", "--instances", "2") as s:
    for n in range(2):
        s.in_background(tokens=tokens(), instance=n)
    until("both are held", lambda: len({n for n, _ in s.held_leases(2)}) == 2)
    s.tell(signal.SIGTERM)
    err = s.ends(1)
    for n in range(2):
        took = re.search(rf"runtime {n} not drained in (\d+\.\d) s: [1-9]\d* retained", err)
        assert took and float(took.group(1)) < 3.5, err
print("requests and ends: passed")

# ---- health: the four statuses


def health(s, status, within=30):
    said = until(f"health is {status}", lambda: next((h for h in [s.inspect("health")] if h.returncode == status), None),
                 within)
    assert ("healthy", "held", "unproven")[status] in said.stdout.splitlines()[0], said.stdout
    answer, code = s.json("health"), s.ask("GET", "/health")
    assert answer["status"] == code[1]["status"] == status, (answer, code)
    assert code[0] == (503 if status == 2 else 200)
    assert f'kvlease_health{{runtime="0"}} {status}' in s.inspect("metrics").stdout
    return said.stdout


with Service(kvlease, "--drills", "--drain", "5s") as s:
    health(s, 0)
    s.in_background(tokens=tokens(), drill={"keep_lease_seconds": 60})
    until("a lease is out", lambda: s.held_leases(1))
    health(s, 0)  # a lease that its holder has is no trouble
    s.tell(signal.SIGTERM)
    text = health(s, 1)  # but the service goes, and waits for it
    assert re.search(r"drain +waits for requests, 1 requests are open, at most \d", text), text
    s.ends(0)
with Service(kvlease, "--faults", "hang=1", "--timeout", "4s", "--stay", "--drain", "1s") as s:
    s.in_background(tokens=tokens())
    health(s, 1)  # past its deadline, in its grace
    assert "transfer timeout" in health(s, 2)  # fatal
    assert s.inspect("why", "lease", s.held_leases(1)[0][1]["id"]).returncode == 2
    s.tell(signal.SIGTERM)
    assert "retained: runtime 0: " in s.ends(1)
with Service(kvlease, "--faults", "unproven=1", "--no-retry-proofs", "--timeout", "60s", "--budget", "3s") as s:
    s.in_background(tokens=tokens())
    health(s, 1)  # disputed, within its budget
    health(s, 2)  # beyond it, and not fatal
    assert s.ask("GET", "/health")[1]["fatal"] is False
print("health: passed")
print("passed")
