#!/bin/sh -e
# Assembles and links the sources of this folder, and writes what GNU readelf
# makes of the results: the truth that the tests compare with. The committed
# files came from binutils 2.40 (Debian 12: binutils, binutils-aarch64-linux-gnu,
# binutils-s390x-linux-gnu).
cd "$(dirname "$0")"
tmp=$(mktemp)
trap 'rm -f "$tmp"' EXIT

build() { # name, source, prefix, as flags, ld flags
	"$3as" $4 -o "$tmp" "$2"
	"$3ld" $5 -shared -s --build-id=none --hash-style=gnu --eh-frame-hdr -z noseparate-code -z max-page-size=4096 -o "$1.elf" "$tmp"
	chmod 644 "$1.elf"
	LC_ALL=C readelf -wFN "$1.elf" >"$1.rows"
	LC_ALL=C readelf -wfN "$1.elf" >"$1.insns"
}

# The same in .debug_frame, as separate debug files have it.
debug() { # name, source, prefix, as flags, ld flags
	{
		echo ".cfi_sections .debug_frame"
		cat "$2"
	} >"$tmp.s"
	"$3as" $4 -o "$tmp" "$tmp.s"
	rm "$tmp.s"
	"$3ld" $5 -shared --build-id=none --hash-style=gnu -z noseparate-code -z max-page-size=4096 $6 -o "$1.elf" "$tmp"
	chmod 644 "$1.elf"
	LC_ALL=C readelf -wFN "$1.elf" >"$1.rows"
	LC_ALL=C readelf -wfN "$1.elf" >"$1.insns"
}

build amd64 amd64.s x86_64-linux-gnu- --64 "-m elf_x86_64"
build i386 i386.s x86_64-linux-gnu- --32 "-m elf_i386"
build arm64 arm64.s aarch64-linux-gnu- -EL "-m aarch64linux"
build arm64be arm64.s aarch64-linux-gnu- -EB "-m aarch64linuxb"
build s390x s390x.s s390x-linux-gnu- "" "-m elf64_s390"

debug amd64-debug amd64.s x86_64-linux-gnu- --64 "-m elf_x86_64" --compress-debug-sections=zlib
debug i386-debug i386.s x86_64-linux-gnu- --32 "-m elf_i386"
debug arm64be-debug arm64.s aarch64-linux-gnu- -EB "-m aarch64linuxb"
debug s390x-debug s390x.s s390x-linux-gnu- "" "-m elf64_s390"
