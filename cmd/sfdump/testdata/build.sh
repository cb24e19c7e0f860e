#!/bin/sh
# build.sh CC READELF ARCH SUFFIX: makes shapes-ARCH-SUFFIX (a program without a C
# library), .o (the object) and what readelf says of both, with a compiler and a
# readelf whose binutils write SFrame. SUFFIX names the version of SFrame.
#   build.sh x86_64-linux-gnu-gcc x86_64-linux-gnu-readelf amd64 v3   # binutils 2.47.50
#   build.sh x86_64-linux-gnu-gcc x86_64-linux-gnu-readelf amd64 v2   # binutils 2.44
set -e
cc=$1 readelf=$2 base=shapes-$3-$4
flags="-O2 -fno-stack-protector -fasynchronous-unwind-tables -Wa,--gsframe"
$cc $flags -fPIE -c -o $base.o shapes.c
$cc $flags -nostdlib -static-pie -Wl,-e,_start -Wl,--build-id=none,-z,max-page-size=4096 -o $base $base.o
for f in $base $base.o; do
	{
		$readelf --sframe=.sframe $f
		$readelf -wFN $f
	} >$f.readelf
done
