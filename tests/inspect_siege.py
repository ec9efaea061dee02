#!/usr/bin/python3
"""What clients do to `kvlease serve` does nothing to its runtime: tests/inspect_siege.py KVLEASE

Against a real service with a replayed load: malformed and huge requests of every class, over the socket and over TCP,
then ten thousand slow clients (as many as the descriptors allow). Every malformed one gets a 4xx, no actor dies or is
stuck, and requests go on meanwhile."""
import itertools, os, random, re, resource, select, signal, socket, sys, time, traceback

from serving import Load, Service, conversations

kvlease = os.path.abspath(sys.argv[1])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
clients = min(10_000, hard - 1000)


def connected(where):
    s = socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET)
    s.settimeout(10)
    for _ in range(1000):
        try:
            s.connect(where)
            return s
        except BlockingIOError:  # a unix socket's queue is full
            time.sleep(0.01)
    raise TimeoutError(f"{where} takes no connection")


def whole(got):
    """The last answer is complete; the connection may be kept."""
    head, _, body = got[got.rfind(b"HTTP/1.1 "):].partition(b"\r\n\r\n")
    length = re.search(rb"Content-Length: (\d+)", head)
    return length is not None and len(body) >= int(length.group(1))


def answers_to(where, data, half_close=True, within=10):
    """The statuses of all that is answered. `half_close`: nothing more is coming, and the client still reads."""
    s = connected(where)
    got = b""
    try:
        end = time.monotonic() + within
        sent = 0
        while time.monotonic() < end:
            writable = [s] if sent < len(data) else []
            readable, ready, _ = select.select([s], writable, [], 1)
            if ready:
                try:
                    sent += s.send(data[sent:sent + 65536])
                except OSError:
                    sent = len(data)
                if sent >= len(data) and half_close:
                    try:
                        s.shutdown(socket.SHUT_WR)
                    except OSError:
                        pass
            if readable:
                try:
                    piece = s.recv(65536)
                except OSError:
                    break
                if not piece:
                    break
                got += piece
                if not half_close and whole(got):
                    break
    finally:
        s.close()
    return [int(x) for x in re.findall(rb"HTTP/1\.[01] (\d\d\d) ", got)], got


host = b"Host: localhost\r\n"
good = b"GET /health HTTP/1.1\r\n" + host + b"\r\n"


def get(target, fields=b""):
    return b"GET " + target + b" HTTP/1.1\r\n" + host + fields + b"\r\n"


def post(target, body, fields=b"", length=None):
    return (b"POST " + target + b" HTTP/1.1\r\n" + host + fields + b"Content-Length: " +
            str(len(body) if length is None else length).encode() + b"\r\n\r\n" + body)


def chunked(target, chunks):
    return b"POST " + target + b" HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n" + chunks


# What is sent, and the status that it gets; None: any 4xx.
malformed = {
    # the request line
    "no HTTP at all": (b"hello\r\n\r\n", 400),
    "binary": (bytes(range(256)) + b"\r\n\r\n", 400),
    "a TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"z" * 300, 400),
    "no target": (b"GET\r\n\r\n", 400),
    "HTTP/0.9": (b"GET /\r\n\r\n", 400),
    "an unknown version": (b"GET / HTTP/9.9\r\n" + host + b"\r\n", 400),
    "HTTP/2's preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "a method of no letters": (b"G@T / HTTP/1.1\r\n" + host + b"\r\n", 400),
    "a method in no list": (b"BREW /pot HTTP/1.1\r\n" + host + b"\r\n", 405),
    "a method that changes": (b"DELETE /snapshot HTTP/1.1\r\n" + host + b"\r\n", 405),
    "OPTIONS": (b"OPTIONS * HTTP/1.1\r\n" + host + b"\r\n", 405),
    "CONNECT": (b"CONNECT localhost:80 HTTP/1.1\r\n" + host + b"\r\n", 405),
    "a huge method": (b"A" * 100_000 + b" / HTTP/1.1\r\n" + host + b"\r\n", None),
    "POST where there is nothing to post": (post(b"/snapshot", b""), 405),
    "GET where there is nothing to get": (get(b"/request"), 405),
    # the target
    "a long target": (get(b"/" + b"a" * 3000), 414),
    "a huge target": (get(b"/" + b"a" * 1_000_000), None),
    "a bad escape": (get(b"/%zz"), 400),
    "a null byte": (get(b"/%00"), 400),
    "an absolute target": (get(b"http://localhost/snapshot"), 400),
    "an unknown path": (get(b"/nowhere"), 404),
    "a path upwards": (get(b"/../../etc/passwd"), None),
    "a kind that is none": (get(b"/why/dog/1.5"), 404),
    "a long id": (get(b"/why/lease/" + b"1" * 500), 414),
    "an id of noise": (get(b"/why/address/%ff%fe%0a"), None),
    "a runtime that is none": (get(b"/runtime/7/snapshot"), 404),
    "a negative number": (get(b"/snapshot?limit=-1"), 400),
    "a number past all": (get(b"/snapshot?limit=99999999999999999999"), 400),
    "a number that is none": (get(b"/events?after=x"), 400),
    # the header
    "no Host": (b"GET /health HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (b"GET /health HTTP/1.1\r\n" + host + host + b"\r\n", 400),
    "a field without a colon": (get(b"/health", b"nonsense\r\n"), 400),
    "a field with a control byte": (get(b"/health", b"X: a\x01b\r\n"), 400),
    "a huge field": (get(b"/health", b"X: " + b"b" * 20_000 + b"\r\n"), 431),
    "many fields": (get(b"/health", b"".join(b"X%d: y\r\n" % i for i in range(5000))), 431),
    "a field without an end": (b"GET / HTTP/1.1\r\nX: " + b"b" * 5_000_000, 431),
    "another's Origin": (get(b"/snapshot", b"Origin: http://evil.example\r\n"), 403),
    "an expectation that is none": (post(b"/request", b"{}", b"Expect: miracles\r\n"), 417),
    # the body
    "a negative length": (b"POST /request HTTP/1.1\r\n" + host + b"Content-Length: -5\r\n\r\n", 400),
    "a length that is none": (b"POST /request HTTP/1.1\r\n" + host + b"Content-Length: ten\r\n\r\n", 400),
    "two lengths": (b"POST /request HTTP/1.1\r\n" + host + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
    "a length past all": (b"POST /request HTTP/1.1\r\n" + host + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
    "a body that is too large": (post(b"/snapshot", b"c" * 10_000), 413),
    "a length that is too large": (post(b"/request", b"", length=4_000_000_000), 413),
    "a body that is too large for requests": (post(b"/request", b"c" * 5_000_000), 413),
    "a body that breaks off": (post(b"/request", b'{"tok', length=1000), 400),
    "a header that breaks off": (b"GET /health HTTP/1.1\r\nHost: loc", 400),
    "a request line that breaks off": (b"GET /hea", 400),
    "a body that is no JSON": (post(b"/request", b"\x00\xff"), 400),
    "a body that is deep": (post(b"/request", b"[" * 100_000), 400),
    "a body of another kind": (post(b"/request", b'{"tokens": "all"}'), 400),
    "too many tokens": (post(b"/request", b'{"tokens": [' + b"1," * 400_000 + b"1]}"), 400),
    # chunks
    "a chunk without a size": (chunked(b"/request", b"zz\r\n"), 400),
    "a chunk past all": (chunked(b"/request", b"f" * 20 + b"\r\nx"), 400),
    "a chunk that is too large": (chunked(b"/request", b"10000000\r\n" + b"d" * 5_000_000), 413),
    "a chunk that breaks off": (chunked(b"/request", b"5\r\nab"), 400),
    "a chunk without its end": (chunked(b"/request", b"2\r\nabXX\r\n0\r\n\r\n"), 400),
    "a huge extension of a chunk": (chunked(b"/request", b"1;" + b"e" * 200_000 + b"\r\nx\r\n0\r\n\r\n"), None),
    "chunks in HTTP/1.0": (b"POST /request HTTP/1.0\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "another coding": (b"POST /request HTTP/1.1\r\n" + host + b"Transfer-Encoding: gzip\r\n\r\nx", 400),
    "a length beside chunks": (b"POST /request HTTP/1.1\r\n" + host +
                               b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
}
# Behind a good request on the same connection: that one is answered, and the rest refused.
pipelined = [b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"garbage " * 5000, b"GET /hea",
             b"POST /request HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"]


def all_up(s):
    actors = s.json("ls", "actors")["actors"]
    assert len(actors) == 9
    for a in actors:
        assert a["state"] == "up" and a["answered"], actors


def check_malformed(s, where):
    for name, (data, expected) in malformed.items():
        for half_close in True, False:
            # Without an end the service waits for more of what breaks off; that has its own test below.
            if not half_close and ("breaks off" in name or "another coding" == name):
                continue
            statuses, got = answers_to(where, data, half_close)
            assert len(statuses) >= 1, f"{name}: no answer"
            last = statuses[-1]
            assert 400 <= last < 500 and expected in (None, last), f"{name}: {last}, not {expected}: {got[:200]}"
            if last == 405:
                allow = re.search(rb"\r\nAllow: ([^\r]*)\r\n", got)
                right = b"POST" if b"/request" in data[:40] else b"GET, HEAD"
                assert allow and allow.group(1) == right, f"{name}: {got[:300]}"
    for garbage in pipelined:
        statuses, got = answers_to(where, good + garbage)
        assert statuses[0] == 200 and len(statuses) == 2 and 400 <= statuses[1] < 500, (garbage[:20], statuses, got[-300:])


def check_noise(s, where, rounds):
    draw = random.Random(7)
    for _ in range(rounds):
        noise = draw.randbytes(draw.randint(1, 2000))
        statuses, _ = answers_to(where, noise)
        assert all(400 <= x < 500 for x in statuses), (noise, statuses)
        # A good request with one byte changed: whatever it is then, it is answered, or another request.
        damaged = bytearray(post(b"/request", b'{"tokens": [1, 2, 3]}'))
        damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        statuses, _ = answers_to(where, bytes(damaged))
        assert statuses and all(x < 500 for x in statuses), (bytes(damaged), statuses)


def check_stalled(s, where):
    """What does not come in time gets a 408; a connection on which nothing came is just closed."""
    stalled = [connected(where) for _ in range(4)]
    for c, data in zip(stalled, (b"GET /hea", b"GET / HTTP/1.1\r\nHost: loc", post(b"/request", b"{", length=50), b"")):
        c.sendall(data)
    for i, c in enumerate(stalled):
        c.settimeout(30)
        got = b""
        while piece := c.recv(4096):
            got += piece
        assert (b"HTTP/1.1 408 " in got) if i < 3 else not got, (i, got)
        c.close()


class Slow:
    """A process with `clients` connections that send a byte now and then, and come again when they are let go."""

    def __init__(self, path):
        self.read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.run(path, write)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        os.close(write)

    @staticmethod
    def connect(path):
        c = connected(path)
        c.setblocking(False)
        try:
            c.send(b"GET /snapshot HTTP/1.1\r\nHost: l")
        except OSError:
            pass  # it has made room for a later one already
        return c

    def run(self, path, write):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        slow = [self.connect(path) for _ in range(clients)]
        os.write(write, b"%d\n" % len(slow))
        for i in itertools.cycle(range(clients)):
            try:
                slow[i].send(b"x")
            except OSError:
                slow[i].close()
                slow[i] = self.connect(path)
            if i % 100 == 99:
                time.sleep(0.1)

    def there(self):
        """How many there are, once all are connected."""
        with os.fdopen(self.read) as lines:
            return int(lines.readline())

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def pace(s, seconds):
    """Requests a second, and the longest of them, under load."""
    with Load(s, conversations(6), 1, patience=60) as load:
        time.sleep(seconds)
        load.stop()
    assert load.answers and load.refused == 0 and load.abandoned == 0, (load.refused, load.abandoned)
    return len(load.answers) / seconds, max(load.seconds)


with Service(kvlease, "--tcp", "127.0.0.1:0", "--local-reuse", "off") as s:
    port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", s.line).group(1))
    with Load(s, conversations(8), 1, concurrency=2, patience=60) as load:
        for where in s.path, ("127.0.0.1", port):
            check_malformed(s, where)
            check_noise(s, where, 100)
        check_stalled(s, s.path)
    assert load.refused == load.abandoned == 0 and load.blocks("wrong") == 0
    all_up(s)
    print(f"malformed: {len(malformed)} classes, {len(pipelined)} pipelined, noise: passed")

    alone, longest_alone = pace(s, 3)
    slow = Slow(s.path)
    count = slow.there()
    besieged, longest = pace(s, 4)
    began = time.monotonic()
    all_up(s)
    answered = time.monotonic() - began
    slow.end()
    print(f"{count} slow clients: {besieged:.0f} requests a second, {alone:.0f} without; longest "
          f"{longest * 1e3:.0f} ms, {longest_alone * 1e3:.0f} ms without; `ls actors` in {answered * 1e3:.0f} ms")
    # The clients take a processor themselves: what counts is that requests go on.
    assert count >= 0.9 * clients and besieged > alone / 10 and longest < 10 and answered < 10
    s.tell(signal.SIGTERM)
    assert "0 retained, 0 wrong blocks, 0 exposure bytes" in s.ends(0)
print("passed")
