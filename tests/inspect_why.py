#!/usr/bin/python3
"""`kvlease inspect why` on the oldest held lease, under replayed load: tests/inspect_why.py KVLEASE

Two processes, and the command's output. Each fault of the decorator strikes in turn while a trace is replayed against
`kvlease serve`: where memory stays held, `why` names the right reason and the evidence awaited; where none does,
nothing is held afterwards. Reasons that no fault causes are set up by the test, under the same load."""
import concurrent.futures, json, os, re, signal, sys, time

from serving import Load, Service, block_tokens, conversations, tokens_of, until

kvlease = os.path.abspath(sys.argv[1])
runtimes = 2
seen = set()
base = ["--instances", str(runtimes), "--local-reuse", "off", "--timeout", "100s",
        "--concurrency", "128", "--staging-slots", "4096"]


def oldest_held(s):
    """The oldest held lease that is still held a second later: what load alone holds comes and goes."""
    def steady():
        before = s.held_leases(runtimes)
        if not before:
            return None
        n, lease = before[0]
        time.sleep(1)
        still = [l["id"] for m, l in s.held_leases(runtimes) if m == n]
        return (n, lease["id"]) if lease["id"] in still else None
    return until("a lease stays held", steady, 60)


def check_why(s, reason, evidence, source, also=None):
    """Asks why the oldest held lease is held; text and JSON."""
    n, lease = oldest_held(s)
    said = s.inspect("--runtime", str(n), "why", "lease", lease)
    assert said.returncode in (1, 2), said
    assert said.stdout.startswith(f"lease {lease}: "), said.stdout
    first = re.search(r"held by +(\w+): ", said.stdout)
    assert first and first.group(1) == reason, f"{reason}: {said.stdout}"
    awaited = re.search(r"waits for +(.*)", said.stdout).group(1)
    assert re.search(evidence, awaited), f"{evidence}: {said.stdout}"
    assert re.search(f"from {source}", awaited), f"{source}: {said.stdout}"
    assert re.search(r"next +\S", said.stdout) and "safe to do" in said.stdout, said.stdout
    answer = s.json("--runtime", str(n), "why", "lease", lease)
    assert answer["schema_version"] == 1
    holder = answer["holders"][0]
    assert holder["reason"] == reason and re.search(evidence, holder["evidence"]), answer
    assert re.search(source, holder["from"]) and holder["age_seconds"] > 0, answer
    if also:
        assert any(h["reason"] == also for h in answer["holders"]), answer
    seen.add(reason)
    return said


def struck(err, kind):
    """How often the decorator struck, as the drain's report has it: a fault that never strikes shows nothing."""
    return sum(int(n) for n in re.findall(rf"faults struck:.*\b{kind} (\d+)", err))


def held_by(kind, probability, reason, evidence, *more):
    """A fault after which memory stays held."""
    with Service(kvlease, *base, "--drain", "1s", "--faults", f"{kind}={probability}", "--late", "100s", *more) as s:
        with Load(s, conversations(1), runtimes):
            check_why(s, reason, evidence, "provider")
            assert s.inspect("health").returncode in (0, 1)
        s.tell(signal.SIGTERM)
        err = s.ends(1)
        assert "retained: " in err and struck(err, kind) > 0, err
    return f"{kind}: {reason}"


def held_by_none(kind, probability, effect):
    """A fault after which nothing is held."""
    with Service(kvlease, *base, "--faults", f"{kind}={probability}") as s:
        with Load(s, conversations(2), runtimes, rounds=2, patience=60) as load:
            load.wait()
            assert load.abandoned == 0 and load.refused == 0
            effect(load)
        until(f"nothing is held after {kind}", lambda: not s.held_leases(runtimes))
        for n in range(runtimes):
            assert s.inspect("--runtime", str(n), "health").returncode == 0
            snapshot = s.json("--runtime", str(n), "snapshot")
            assert snapshot["operations_total"] == snapshot["leases_total"] == 0, snapshot
            assert all(p["free"] == p["total"] for p in snapshot["pools"]), snapshot["pools"]
        s.tell(signal.SIGTERM)
        err = s.ends(0)
        assert struck(err, kind) > 0, err
    return f"{kind}: nothing held"


def some(of, what):
    return lambda load: (_ for _ in ()).throw(AssertionError(what)) if load.blocks(of) == 0 else None


def none(of, what):
    return lambda load: (_ for _ in ()).throw(AssertionError(what)) if load.blocks(of) != 0 else None


def set_up(reason, evidence, source, drill):
    """A reason that the test sets up, on a fetch of what was published before."""
    with Service(kvlease, *base, "--drills") as s:
        prompt = tokens_of(range(1000, 1008))
        assert s.request(tokens=prompt, instance=0)[0] == 200
        with Load(s, conversations(3), runtimes):
            s.in_background(tokens=prompt, instance=1, drill=drill)
            check_why(s, reason, evidence, source)
    return reason


def registered():
    with Service(kvlease, *base) as s:
        with Load(s, conversations(4), runtimes):
            part = s.ask("GET", "/snapshot")[1]["registrations"][0]["part"]
            for kind, name in ("registration", part), ("slot", f"{part}/4095"):
                said = s.inspect("why", kind, name)
                assert said.returncode == 1, said
                assert re.search(r"held by +registered_by_backend: registration", said.stdout), said.stdout
                assert re.search(r"waits for +close of registration \d+\.\d+, from provider", said.stdout), said.stdout
            slot = s.inspect("why", "slot", f"{part}/4095").stdout
            assert slot.startswith(f"slot {part}/4095: free") and "outcome" not in slot, slot
            age = s.json("ls", "registrations")["registrations"][0]["age_seconds"]
            assert 0 < age < 600
            seen.add("registered_by_backend")
    return "registered_by_backend"


def shutdown():
    with Service(kvlease, *base, "--faults", "hang=0.05", "--drain", "6s") as s:
        with Load(s, conversations(5), runtimes):
            oldest_held(s)
            s.tell(signal.SIGTERM)
            # First it waits for requests: that is no rest, though no runtime is going yet.
            said = until("health tells of the drain", lambda: next(
                (h for h in [s.inspect("health")] if "drain" in h.stdout), None))
            assert said.returncode == 1, said
            assert re.search(r"drain +waits for requests, \d+ requests are open, at most \d", said.stdout), said.stdout
            assert s.ask("GET", "/health")[1]["drain"]["waits_for"] == "requests"
            until("the runtimes stop", lambda: s.json("health")["drain"]["waits_for"] == "evidence")
            check_why(s, "backend_access_running", r"access end of operation", "provider", also="shutdown_drain")
            said = s.inspect("health")
            assert said.returncode == 1 and re.search(r"drain +waits for evidence, .*at most \d", said.stdout), said
            seen.add("shutdown_drain")
        err = s.ends(1)
        for n in range(runtimes):
            assert f"runtime {n} not drained" in err, err
    return "shutdown_drain"


running = r"access end of operation \d+\.\d+ \(proof \d+\.\d+\)"
cases = [
    lambda: held_by("hang", 0.05, "backend_access_running", running),
    lambda: held_by("late", 0.05, "backend_access_running", running),
    lambda: held_by("stubborn", 0.05, "backend_access_running", running),
    lambda: held_by("unproven", 0.05, "backend_end_unproven", r"a new proof of the access end of operation \d+\.\d+",
                    "--no-retry-proofs"),
    lambda: held_by("escape", 0.05, "backend_end_unproven",
                    r"none can come: the submission of operation \d+\.\d+ escaped"),
    lambda: held_by_none("miss", 1, none("fetched", "a miss has served blocks")),
    lambda: held_by_none("partial", 0.5, some("fetched", "nothing was fetched")),
    lambda: held_by_none("fail", 1, none("published", "a failure has published blocks")),
    lambda: held_by_none("reject", 1, none("published", "a rejection has published blocks")),
    lambda: set_up("lent_not_submitted", r"its submission, or its withdrawal", "host", {"keep_lease_seconds": 100}),
    lambda: set_up("consumer_reading", r"the end of 1 read guard of lease", "host", {"read_guard_seconds": 100}),
    lambda: set_up("local_copy_pending", r"event of copy \d+\.\d+ of lease", "CUDA actor", {"copy_seconds": 100}),
    lambda: set_up("quarantined", r"none can come: a local copy can't be proven complete", "CUDA actor",
                   {"lose_copy": True}),
    registered,
    shutdown,
]
assert len(conversations(1)) == 60 and block_tokens == 64
# They mostly wait, each for its own service.
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    for done in concurrent.futures.as_completed([pool.submit(c) for c in cases]):
        print(done.result(), flush=True)
missing = {"lent_not_submitted", "backend_access_running", "backend_end_unproven", "local_copy_pending",
           "consumer_reading", "registered_by_backend", "shutdown_drain", "quarantined"} - seen
assert not missing, f"never shown: {missing}"
print("passed")
