#!/bin/sh
# Makes the tiny-*.so seeds of the fuzz tests from tiny.c: gcc 12.2.0, binutils
# 2.40 of Debian 12 (tiny-amd64-*), and the same compilers for s390x.
set -e
cd "$(dirname "$0")"
flags="-ffile-prefix-map=$PWD=/src -O2 -shared -fPIC -nostdlib -Wl,--build-id=sha1 -Wl,-z,norelro -Wl,-z,noseparate-code"
gcc $flags -gdwarf-5 -o tiny-amd64-dwarf5.so tiny.c
gcc $flags -gdwarf-4 -gz=zlib -o tiny-amd64-dwarf4z.so tiny.c
gcc $flags -gdwarf-2 -gstrict-dwarf -o tiny-amd64-dwarf2.so tiny.c
s390x-linux-gnu-gcc $flags -gdwarf-5 -o tiny-s390x-dwarf5.so tiny.c
aarch64-linux-gnu-gcc $flags -gdwarf-5 -o tiny-arm64-dwarf5.so tiny.c
