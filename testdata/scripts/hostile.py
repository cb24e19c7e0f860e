# Runs for ever in functions whose names, modules and files are made to do harm.
NAMES = ["\x1b[31m;two\nlines 17\r\x00\x07\x7f", "\ud800;\udfff\u202e\x9b1m", "<script>x</script>]]>&\"'`$(x)", "x" * (1 << 20), "", "a.py:1;b b.py:2 3"]


def spin():
    for _ in range(10000):
        pass


g = lambda: [spin() for _ in iter(int, 1)]
for name in NAMES:
    space = {"__name__": name, "g": g}
    exec("def f():\n    g()", space)
    new = {"co_name": name, "co_filename": name}
    f = space["f"]
    if hasattr(f.__code__, "co_qualname"):
        new["co_qualname"] = name
    f.__code__ = f.__code__.replace(**new)
    g = f
print("ready", flush=True)
g()
