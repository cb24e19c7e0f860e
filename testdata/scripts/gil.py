# Blocks in a read of standard input, by turns with the global lock and without, and tells that before; a line goes on. Another thread
# wants the lock all the time. With "sub" the reader runs in an interpreter with a lock of its own, while the main one's is held for ever.
import ctypes
import os
import sys
import threading

READER = """
import ctypes
import os
import threading

buf = ctypes.create_string_buffer(1)
held = True
while True:
    line = '{"tid": %d, "held": %s, "other": %d}\\n' % (threading.get_native_id(), str(held).lower(), other)
    read = (ctypes.PyDLL if held else ctypes.CDLL)(None).read
    begun()
    os.write(1, line.encode())
    read(0, buf, 1)
    held = not held
"""


def spin():
    while True:
        pass


if sys.argv[1] == "sub":
    import _interpreters

    r, w = os.pipe()
    code = "other = %d\n\ndef begun():\n    os.write(%d, b'.')\n" % (threading.get_native_id(), w) + READER
    threading.Thread(target=_interpreters.run_string, args=(_interpreters.create(), code)).start()
    os.read(r, 1)
    ctypes.PyDLL(None).pause()
else:
    t = threading.Thread(target=spin, daemon=True)
    t.start()
    exec(READER, {"other": t.native_id, "begun": lambda: None})
