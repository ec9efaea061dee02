#!/usr/bin/python3
"""What `kvlease inspect` writes for other programs, against their formats: tests/inspect_formats.py KVLEASE

The trace of a real service under load, live and from a saved snapshot, against the Chrome trace event format (the
loaders themselves, Perfetto's trace_processor and chrome://tracing, are in no package); /metrics against promtool; the
Grafana dashboard, whose every metric and label is in /metrics and whose every query is PromQL; the Prometheus
configuration and the systemd unit against their own checkers. Each checker is seen to refuse something, too."""
import copy, json, os, re, shutil, subprocess, sys, tempfile

from serving import Load, Service, conversations, until

kvlease, source = os.path.abspath(sys.argv[1]), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
scratch = tempfile.TemporaryDirectory()
promtool = shutil.which("promtool")


def write(name, text):
    path = f"{scratch.name}/{name}"
    with open(path, "w") as f:
        f.write(text)
    return path


# ---- the Chrome trace event format, as its specification has it: "Trace Event Format", JSON Object Format

def check_trace(trace):
    """Raises what is wrong with it. Answers {track's name: its events}."""
    assert isinstance(trace["traceEvents"], list) and trace["displayTimeUnit"] in ("ms", "ns")
    processes, threads, tracks, pending = {}, {}, {}, {}
    for e in trace["traceEvents"]:
        assert isinstance(e["name"], str) and e["name"], e
        assert type(e["pid"]) is int and type(e["tid"]) is int, e
        assert isinstance(e["ts"], (int, float)) and e["ts"] >= 0, e
        assert isinstance(e.get("args", {}), dict) and isinstance(e.get("cat", ""), str), e
        track = e["pid"], e["tid"]
        if e["ph"] == "M":
            names = {"process_name": processes, "thread_name": threads}[e["name"]]
            key = e["pid"] if e["name"] == "process_name" else track
            assert key not in names, f"named twice: {e}"
            names[key] = e["args"]["name"]
            assert isinstance(names[key], str) and names[key]
            continue
        if e["ph"] == "X":
            assert isinstance(e["dur"], (int, float)) and e["dur"] >= 0, e
        elif e["ph"] == "i":
            assert e["s"] in ("g", "p", "t"), e
        elif e["ph"] in ("b", "n", "e"):  # asynchronous ones pair up by category and id
            key = e["cat"], e["id"]
            pending[key] = pending.get(key, 0) + {"b": 1, "n": 0, "e": -1}[e["ph"]]
            assert pending[key] >= 0, f"ends before it begins: {e}"
        else:
            raise AssertionError(f"no phase that is written: {e}")
        tracks.setdefault(track, []).append(e)
    assert not any(pending.values()), pending
    for track, events in tracks.items():
        assert track in threads and track[0] in processes, f"a track without a name: {track}"
        open_until, last = [], 0
        for e in events:
            start = round(e["ts"] * 1000)  # readers count nanoseconds
            assert start >= last, f"out of order on its track: {e}"
            last = start
            if e["ph"] != "X":
                continue
            end = start + round(e["dur"] * 1000)
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1], f"overlaps, and does not nest: {e}"
            open_until.append(end)
    return {threads[t]: events for t, events in tracks.items()}


def refuses(check, thing, spoil):
    """The check can fail."""
    broken = copy.deepcopy(thing)
    spoil(broken)
    try:
        check(broken)
    except (AssertionError, KeyError, TypeError):
        return
    raise AssertionError(f"{check.__name__} finds nothing wrong")


def spoil_nesting(trace):
    e = next(e for e in trace["traceEvents"] if e["ph"] == "X")
    e["dur"] /= 2


def check_tracks(trace):
    """A track an operation, with its evidence."""
    tracks = check_trace(trace)
    operations = {name: events for name, events in tracks.items() if name.startswith("operation ")}
    assert operations
    whole = 0
    for name, events in operations.items():
        marks = [e["name"] for e in events if e["ph"] == "i"]
        whole += {"exposed", "outcome_committed", "access_ended", "claim_settled", "operation_released"} <= set(marks)
        assert events[0]["ph"] == "X" and events[0]["name"] == name, events[0]
    assert whole > len(operations) / 2, f"{whole} of {len(operations)} are whole"
    return len(operations)


# ---- Prometheus and Grafana

def samples(metrics):
    """{metric: its labels} of what is exposed."""
    out = {}
    for name, labels in re.findall(r"^(\w+)\{([^}]*)\} \S+$", metrics, re.M):
        out.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return out


def check_dashboard(board):
    assert board["title"] and board["uid"] and type(board["schemaVersion"]) is int
    variables = {v["name"] for v in board["templating"]["list"]}
    ids, taken, queries = set(), set(), []
    for p in board["panels"]:
        assert p["id"] not in ids and p["type"] and p["title"], p
        ids.add(p["id"])
        g = p["gridPos"]
        assert g["x"] >= 0 and g["x"] + g["w"] <= 24 and g["w"] > 0 and g["h"] > 0, g
        cells = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
        assert not cells & taken, f"panels overlap: {p['title']}"
        taken |= cells
        refs = [t["refId"] for t in p["targets"]]
        assert refs and len(set(refs)) == len(refs), p["title"]
        queries += [t["expr"] for t in p["targets"]]
    queries += [q["query"][len("label_values("):-1].split(",")[0] for q in board["templating"]["list"]
                if q["type"] == "query"]
    for name in re.findall(r"\$\{?(\w+)", json.dumps(board)):
        assert name in variables or name.startswith("__"), f"no variable is named {name}"
    return queries


def check_queries(queries, exposed):
    for q in queries:
        names = re.findall(r"\bkvlease_\w+", q)
        assert names, q
        for name in names:
            assert name in exposed, f"{name} is not exposed"
            used = set(re.findall(r"(\w+)\s*=~?", q)) | {
                l.strip() for group in re.findall(r"\bby \(([^)]*)\)", q) for l in group.split(",")}
            assert used <= exposed[name], f"{q}: {name} has no label {used - exposed[name]}"


def promtool_says(*args, text=None):
    return subprocess.run([promtool, *args], input=text, capture_output=True, text=True)


with Service(kvlease, "--instances", "2", "--local-reuse", "off", "--faults", "fail=0.1,partial=0.1,hang=0.02",
             "--timeout", "100s") as s:
    with Load(s, conversations(9), 2, patience=2) as load:
        until("some requests are through", lambda: len(load.answers) > 40)
    metrics = s.inspect("metrics").stdout
    said = s.inspect("trace")
    assert said.returncode in (0, 1)
    trace = json.loads(said.stdout)
    assert trace["schema_version"] == 1 and json.loads(s.inspect("trace", "--json").stdout)["schema_version"] == 1
    saved = s.inspect("snapshot")
    assert saved.returncode in (0, 1)
    file = write("snapshot.json", saved.stdout)

n = check_tracks(trace)
refuses(check_trace, trace, spoil_nesting)
refuses(check_trace, trace, lambda t: t["traceEvents"].append({**t["traceEvents"][-1], "ph": "Z"}))
refuses(check_trace, trace, lambda t: t["traceEvents"].append({**t["traceEvents"][-1], "ts": 0}))
refuses(check_trace, trace, lambda t: t["traceEvents"].append({**t["traceEvents"][-1], "tid": 10 ** 9}))
refuses(check_trace, trace, lambda t: t["traceEvents"][-1].pop("s", None) or t["traceEvents"][-1].pop("dur", None))
refuses(check_trace, trace, lambda t: t["traceEvents"].append(
    {**t["traceEvents"][-1], "ph": "b", "id": 1, "cat": "x"}))
print(f"trace: {len(trace['traceEvents'])} events, {n} operations: passed")


def from_file(*args):
    return subprocess.run([kvlease, "inspect", "--file", file, *args], capture_output=True, text=True)


said = from_file("trace")
assert said.returncode in (0, 1) and check_tracks(json.loads(said.stdout)) > 0, said
said = from_file("metrics")
assert said.returncode in (0, 1)
assert samples(said.stdout) == samples("\n".join(l for l in metrics.splitlines() if 'runtime="1"' not in l)), said.stdout
assert from_file("metrics", "--json").stdout.startswith('{"schema_version":1,')
for command in ["ls", "operations"], ["ls", "actors"], ["health"], ["top"], ["snapshot"]:
    assert from_file(*command).returncode in (0, 1), command
said = from_file("watch")
assert said.returncode == 64 and "nothing happens in it" in said.stderr, said
bare = json.loads(saved.stdout)
del bare["metrics"], bare["events"]
file = write("bare.json", json.dumps(bare))
for command in "metrics", "trace":
    said = from_file(command)
    assert said.returncode == 64 and "was saved without" in said.stderr, said
print("a saved snapshot: passed")

board = json.load(open(f"{source}/docs/examples/grafana-dashboard.json"))
queries = check_dashboard(board)
exposed = samples(metrics)
check_queries(queries, exposed)
refuses(check_dashboard, board, lambda b: b["panels"].append(b["panels"][0]))
refuses(lambda q: check_queries(q, exposed), queries, lambda q: q.append("sum(kvlease_nonsense_total)"))
refuses(lambda q: check_queries(q, exposed), queries, lambda q: q.append("sum by (colour) (kvlease_health)"))
print(f"dashboard: {len(queries)} queries: passed")

if promtool:
    for text in metrics, subprocess.run([kvlease, "inspect", "--file", f"{scratch.name}/snapshot.json", "metrics"],
                                        capture_output=True, text=True).stdout:
        said = promtool_says("check", "metrics", text=text)
        assert said.returncode == 0 and not said.stdout + said.stderr, said
    assert promtool_says("check", "metrics", text=metrics + "kvlease_health 1\nbad{ 1\n").returncode != 0
    rules = "groups:\n- name: dashboard\n  rules:\n"
    for i, q in enumerate(queries):
        q = re.sub(r"\$\{?runtime\}?", ".*", q)
        rules += f"  - record: q{i}\n    expr: {json.dumps(q)}\n"
    said = promtool_says("check", "rules", write("rules.yml", rules))
    assert said.returncode == 0, said
    broken = write("broken.yml", rules + "  - record: bad\n    expr: 'sum by ('\n")
    assert promtool_says("check", "rules", broken).returncode != 0
    said = promtool_says("check", "config", f"{source}/docs/examples/prometheus.yml")
    assert said.returncode == 0, said
    print("promtool: passed")
else:
    print("NOT RUN: promtool is not installed (Debian: prometheus)")
if shutil.which("systemd-analyze"):
    unit = open(f"{source}/docs/examples/kvlease.service").read().replace("/usr/bin/kvlease", kvlease)
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", write("kvlease.service", unit)], capture_output=True,
                          text=True)
    complaints = [l for l in said.stderr.splitlines() if "kvlease.service" in l]
    assert not complaints, complaints
    print("systemd-analyze: passed")
else:
    print("NOT RUN: systemd-analyze is not installed")
print("passed")
