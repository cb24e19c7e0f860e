# Writes its own stack, as JSON, on standard output, and blocks in a read of standard input; for each line that it reads, it goes on to
# the next stack. With "random" it computes for ever instead.
import ctypes
import functools
import json
import os
import re
import sys
import threading

rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 1
where = sys.argv[1] if len(sys.argv) > 1 else "main"
libc = ctypes.CDLL(None)
busy = where == "random"


def tell(frame):
    stack = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        stack.append([frame.f_globals.get("__name__", ""), name, code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return stack


def report(*args):
    if busy:
        n = 0
        for i in range(2000):
            n += i * i
        return n
    out = json.dumps({"tid": threading.get_native_id(), "stack": tell(sys._getframe())}) + "\n"; os.write(1, out.encode()); os.read(0, 1)
    return 0


def key(x):
    report()
    return x


class Shim:
    def __init__(self, x):
        self.x = x
        report()

    def __del__(self):
        report()

    def __lt__(self, other):
        report()
        return self.x < other.x

    @property
    def prop(self):
        return report()

    def __getattr__(self, name):
        report()
        return name


class Meta(type):
    def __new__(mcs, name, bases, ns):
        report()
        return super().__new__(mcs, name, bases, ns)


def gen(n):
    for i in range(n):
        report()
        yield i


def chain(n):
    yield from gen(n)


async def leaf():
    report()


async def coro(depth):
    if depth:
        await coro(depth - 1)
    else:
        await leaf()


def drive(c):
    try:
        c.send(None)
    except StopIteration:
        pass


@functools.lru_cache(None)
def cached(x):
    report()
    return x


def deep(n):
    if n:
        return deep(n - 1)
    return report()


COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))


@COMPARE
def compare(a, b):
    report()
    return a[0] - b[0]


def umlaut_äöü_日本():
    report()


def c_qsort():
    a = (ctypes.c_int * 3)(3, 1, 2)
    libc.qsort(a, 3, ctypes.sizeof(ctypes.c_int), compare)


def one(i):
    cached.cache_clear()
    report()
    sorted([2, 1], key=key)
    list(map(key, [1]))
    re.sub("a", lambda m: key("b"), "a")
    s = Shim(1)
    s < Shim(2)
    s.prop
    s.nothing
    del s
    Meta("Made", (), {})
    list(chain(2))
    drive(coro(3))
    cached(i)
    c_qsort()
    umlaut_äöü_日本()
    deep(40)
    exec("def made_%d():\n\n    report()\nmade_%d()" % (i, i), globals())
    exec(compile("x = 1\nreport()\n", "<made; up\x1b[31m>", "exec"), {"report": report, "__name__": "other"})
    eval("[report() for _ in range(1)]")
    (lambda: report())()
    [report() for _ in range(1)]
    sum(report() for _ in range(1))


def main():
    i = 0
    while busy or i < rounds:
        one(i)
        i += 1


if where == "thread":
    t = threading.Thread(target=main, name="worker")
    t.start()
    t.join()
elif busy:
    t = threading.Thread(target=main, name="worker", daemon=True)
    t.start()
    main()
else:
    main()
