"""`kvlease serve` as a process of its own, for the tests that use it as a user does: start, ask, load, inspect, end.

Used by tests/inspect_*.py. Nothing here decides what is right."""
import http.client, json, os, random, signal, socket, subprocess, tempfile, threading, time

block_tokens = 64  # --tokens-per-block


def until(what, ready, within=30, pause=0.02):
    """The first value of `ready()` that is true; fails after `within` seconds."""
    end = time.monotonic() + within
    while True:
        value = ready()
        if value:
            return value
        assert time.monotonic() < end, f"not within {within} s: {what}"
        time.sleep(pause)


class Unix(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Service:
    """`kvlease serve` on a socket in a directory of its own. Ends with the `with` block, whatever happens."""

    def __init__(self, kvlease, *options, expect_start=True):
        self.kvlease = kvlease
        self.directory = tempfile.TemporaryDirectory()
        self.path = self.directory.name + "/s"
        self.process = subprocess.Popen([kvlease, "serve", "--socket", self.path, *options], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.line = self.process.stdout.readline()
        if expect_start:
            assert "runtime" in self.line, self.line + self.process.stderr.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.directory.cleanup()

    def tell(self, which):
        self.process.send_signal(which)

    def ends(self, status, within=60):
        """Its stderr, once it has ended with this status."""
        _, err = self.process.communicate(timeout=within)
        assert self.process.returncode == status, f"status {self.process.returncode}, not {status}: {err}"
        return err

    # ---- HTTP

    def ask(self, method, target, body=None, timeout=60):
        c = Unix(self.path, timeout)
        try:
            c.request(method, target, body=None if body is None else json.dumps(body))
            r = c.getresponse()
            text = r.read()
        finally:
            c.close()
        return r.status, json.loads(text) if text.startswith(b"{") else text.decode()

    def request(self, timeout=60, **body):
        return self.ask("POST", "/request", body, timeout)

    def in_background(self, **body):
        def run():
            try:
                self.request(**body)
            except (OSError, http.client.HTTPException):
                pass  # the service ends meanwhile
        t = threading.Thread(target=run, daemon=True)
        t.start()
        return t

    # ---- kvlease inspect

    def inspect(self, *args, within=60):
        return subprocess.run([self.kvlease, "inspect", "--socket", self.path, *args], capture_output=True, text=True,
                              timeout=within)

    def json(self, *args):
        said = self.inspect(*args, "--json")
        return json.loads(said.stdout or "{}")

    def held_leases(self, runtimes):
        """(runtime, lease) of every held lease, the oldest first."""
        held = [(n, l) for n in range(runtimes)
                for l in self.json("--runtime", str(n), "ls", "leases").get("leases", []) if l["reasons"]]
        return sorted(held, key=lambda x: -x[1]["age_seconds"])


# ---- load

def tokens_of(hash_ids):
    """The prompt whose blocks have these names: as many tokens a block as serve has, and one behind them."""
    return [h * block_tokens + t for h in hash_ids for t in range(block_tokens)] + [1]


def conversations(seed, sessions=12, turns=5):
    """A trace as Mooncake publishes them: requests of several conversations, each turn the one before and more."""
    draw = random.Random(seed)
    fresh = iter(range(seed * 10_000_000 // block_tokens % 20_000_000, 2 ** 31 // block_tokens - 1))
    prefix = [next(fresh) for _ in range(2)]  # the system's prompt, shared by all
    open_ones = [list(prefix) for _ in range(sessions)]
    trace = []
    for turn in range(turns):
        for s in draw.sample(range(sessions), sessions):
            open_ones[s] += [next(fresh) for _ in range(draw.randint(1, 4))]
            trace.append({"timestamp": len(trace) * 10, "input_length": len(open_ones[s]) * block_tokens + 1,
                          "output_length": 1, "hash_ids": list(open_ones[s])})
    return trace


class Load:
    """Replays a trace against a service, `concurrency` requests at a time, again and again until `stop`. A client
    that has no answer in `patience` seconds goes on with the next request."""

    def __init__(self, service, trace, instances, concurrency=4, patience=2, rounds=None):
        self.service, self.trace, self.instances, self.patience = service, trace, instances, patience
        self.rounds, self.next, self.lock, self.ending = rounds, 0, threading.Lock(), threading.Event()
        self.answers, self.refused, self.abandoned, self.seconds = [], 0, 0, []
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(concurrency)]
        for t in self.threads:
            t.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def take(self):
        with self.lock:
            n, self.next = self.next, self.next + 1
        done = self.rounds is not None and n >= self.rounds * len(self.trace)
        return None if done or self.ending.is_set() else n

    def run(self):
        while (n := self.take()) is not None:
            began = time.monotonic()
            try:
                status, answer = self.service.request(self.patience, tokens=tokens_of(
                    self.trace[n % len(self.trace)]["hash_ids"]), instance=n % self.instances)
            except (OSError, http.client.HTTPException):
                self.abandoned += 1
                self.ending.wait(0.05)
                continue
            with self.lock:
                if status == 200:
                    self.answers.append(answer)
                    self.seconds.append(time.monotonic() - began)
                else:
                    self.refused += 1
            if status != 200:
                self.ending.wait(0.05)

    def stop(self):
        self.ending.set()
        self.wait()

    def wait(self):
        for t in self.threads:
            t.join(120)

    def blocks(self, what):
        with self.lock:
            return sum(a["blocks"][what] for a in self.answers)
