#!/bin/bash
# build.sh [ARCH/VARIANT...]: builds the committed test programs, all or those
# named, from progs/ to bin/ARCH/VARIANT/, and records with what in TOOLCHAIN.
#
# They are committed because a distribution's own compiler cannot make them:
# SFrame and pointer authentication need newer tools, arm64 and s390x need
# cross compilers. Needs root and the network for go run ./tools/vm.
set -euo pipefail
cd "$(dirname "$0")"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
(cd .. && go build -o "$tmp/vm" ./tools/vm)
mkdir "$tmp/work"
cp progs/*.[ch] "$tmp/work"

# Tables: which an object keeps. The assembler writes SFrame from the same
# directives as .eh_frame, so the latter goes away afterwards.
tables='-fasynchronous-unwind-tables'
notables='-fno-asynchronous-unwind-tables -fno-unwind-tables'

# settings ARCH VARIANT: sets triplet, suite, flags, link and sframe (SFrame
# only, no .eh_frame), dyn (dynamically linked).
settings() {
	local arch=$1 variant=$2
	# noseparate-code and norelro keep the file from being padded to pages,
	# which on arm64 have 64 KiB.
	suite=forky flags='-O2 -fomit-frame-pointer -ffreestanding -fno-stack-protector -fno-pic -no-pie -fcf-protection=none'
	link='-nostdlib -Wl,-z,noseparate-code -Wl,-z,norelro -Wl,--build-id=sha1' sframe= dyn=
	case $arch in
	amd64) triplet=x86_64-linux-gnu flags+=' -mno-red-zone' ;;
	386) triplet=x86_64-linux-gnu flags+=' -m32' link+=' -m32' ;;
	arm64) triplet=aarch64-linux-gnu flags="${flags/ -fcf-protection=none/} -mno-outline-atomics" ;;
	s390x) triplet=s390x-linux-gnu flags=${flags/ -fcf-protection=none/} ;;
	*) echo "build.sh: unknown architecture $arch" >&2 && exit 1 ;;
	esac
	case $variant in
	*-dyn) dyn=yes flags=${flags/-fno-pic -no-pie/-fPIC} ;;
	esac
	case $variant in
	sframe2*) suite=trixie ;;
	esac
	case $variant in
	sframe[23]*) flags+=" $tables -Wa,--gsframe" sframe=yes ;;
	ehframe*) flags+=" $tables" ;;
	fp*) flags+=" $notables -fno-omit-frame-pointer" ;;
	none) flags+=" $notables" ;;
	backchain*) flags+=" $notables -mbackchain" ;;
	packed) flags+=" $notables -mbackchain -mpacked-stack -msoft-float" ;;
	*) echo "build.sh: unknown variant $variant" >&2 && exit 1 ;;
	esac
	case $variant in
	*-pac) flags+=' -mbranch-protection=pac-ret' ;;
	*-pacleaf) flags+=' -mbranch-protection=pac-ret+leaf' ;;
	*-bti) flags+=' -mbranch-protection=bti' ;;
	esac
}

tool() { (cd "$tmp/work" && "$tmp/vm" cc -suite "$suite" "$triplet-$@"); }

# object SOURCE OBJECT FLAGS...: compiles one file.
object() {
	local src=$1 obj=$2
	shift 2
	# shellcheck disable=SC2086 # lists of options
	tool gcc $flags "$@" -c -o "$obj" "$src"
	[ -z "$sframe" ] || tool objcopy -R .eh_frame -R .rela.eh_frame "$obj"
}

# build_mixed ARCH: one program of three objects with a variant each.
build_mixed() {
	local arch=$1 out=bin/$1/mixed first=fp-dyn lib
	[ "$arch" != s390x ] || first=backchain-dyn
	rm -rf "$out"
	mkdir -p "$out"
	for lib in SECOND:ehframe-dyn:libsecond.so FIRST:$first:libfirst.so PROGRAM:sframe3-dyn:mixed; do
		IFS=: read -r part variant lib <<<"$lib"
		settings "$arch" "$variant"
		object mixed.c "$part.o" "-D$part"
		case $part in
		SECOND) link+=' -shared -Wl,-soname,libsecond.so' ;;
		FIRST) link+=' -shared -Wl,-soname,libfirst.so libsecond.so -Wl,--no-eh-frame-hdr' ;;
		PROGRAM) link+=' -pie libfirst.so -Wl,--no-eh-frame-hdr -Wl,-rpath-link,.' ;;
		esac
		# shellcheck disable=SC2086
		tool gcc -o "$lib" "$part.o" $link -Wl,-rpath,'$ORIGIN'
		[ "$part" = SECOND ] || tool objcopy -R .eh_frame "$lib"
	done
	(cd "$tmp/work" && mv mixed libfirst.so libsecond.so "$OLDPWD/$out")
}

# build ARCH/VARIANT
build() {
	local arch=${1%/*} variant=${1#*/} out=bin/$1
	[ "$variant" != mixed ] || { build_mixed "$arch"; return; }
	settings "$arch" "$variant"
	rm -rf "$out"
	mkdir -p "$out"
	if [ -n "$dyn" ]; then
		[ -z "$sframe" ] || link+=' -Wl,--no-eh-frame-hdr'
		object deep.c lib.o -DLIBRARY
		object deep.c main.o -DPROGRAM -fPIE
		tool gcc $link -shared -Wl,-soname,libdeep.so -o libdeep.so lib.o
		tool gcc $link -pie -Wl,-rpath,'$ORIGIN' -o deep main.o libdeep.so
		# The linker writes .eh_frame for the PLT.
		for f in deep libdeep.so; do
			[ -z "$sframe" ] || tool objcopy -R .eh_frame "$f"
		done
		mv "$tmp/work/libdeep.so" "$tmp/work/deep" "$out"
	else
		local programs='deep'
		case $arch/$variant in
		386/*) ;;
		*/sframe3 | */ehframe | */fp | */backchain | */none) programs+=' blocked spinners handler' ;;
		esac
		case $arch/$variant in
		386/*) ;;
		*/sframe3 | */ehframe) programs+=' altstack' ;;
		esac
		# What these do does not depend on how they are unwound.
		[ "$variant" != none ] || [ "$arch" = 386 ] || programs+=' signals churn'
		for p in $programs; do
			object "$p.c" "$p.o"
			# shellcheck disable=SC2086
			tool gcc $link -static -o "$p" "$p.o"
			mv "$tmp/work/$p" "$out"
		done
	fi
}

all='
amd64/sframe3 amd64/sframe3-dyn amd64/sframe2 amd64/sframe2-dyn amd64/ehframe amd64/ehframe-dyn amd64/fp amd64/none amd64/mixed
386/fp 386/ehframe 386/none
arm64/sframe3 arm64/sframe3-dyn arm64/sframe3-pac arm64/sframe3-pacleaf arm64/sframe2 arm64/sframe2-pac
arm64/sframe3-bti arm64/ehframe arm64/ehframe-dyn arm64/ehframe-pac arm64/ehframe-pacleaf arm64/ehframe-bti
arm64/fp arm64/fp-pac arm64/fp-bti arm64/none arm64/mixed
s390x/sframe3 s390x/sframe3-dyn s390x/ehframe s390x/ehframe-dyn s390x/backchain s390x/packed s390x/none s390x/mixed
'
[ $# -gt 0 ] || set -- $all
for target; do
	build "$target"
done

# The record: package versions of the compilers, then a hash of each source
# and each program.
{
	echo '# Written by build.sh.'
	"$tmp/vm" toolchains
	sha256sum build.sh progs/*.h progs/{deep,blocked,spinners,handler,altstack,signals,churn,mixed}.c
	find bin -type f | LC_ALL=C sort | xargs sha256sum
} >TOOLCHAIN
