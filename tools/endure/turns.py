"""Functions that are made, called and thrown away, libraries that come and go, threads that live for a moment."""
import _ctypes, ctypes, itertools, threading

LIBRARIES = "libm.so.6 libz.so.1 libcrypto.so.3 libstdc++.so.6 libexpat.so.1 libffi.so.8".split()


def call(f):
    for _ in range(2000):
        f(3)


for n in itertools.count():
    space = {}
    exec("def turn%d(x): return sum(i * x for i in range(20))" % (n % 50), space)
    call(space["turn%d" % (n % 50)])
    t = threading.Thread(target=call, args=(abs,))
    t.start()
    t.join()
    try:
        _ctypes.dlclose(ctypes.CDLL(LIBRARIES[n % len(LIBRARIES)])._handle)
    except OSError:
        pass
