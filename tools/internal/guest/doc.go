// Package guest runs commands in a virtual machine of another architecture.
//
// A machine is one of Debian's kernels under qemu (emulation, so it needs no
// rights and no support by this machine's CPU) with an initramfs that holds
// what the commands need and nothing else: there is no shell and no disk. One
// boot takes about two seconds on an idle machine and can run many commands.
//
// Code in a guest is 10 to 25 times slower than here, and a stop of a traced
// thread takes up to 50 ms: tests there must not assume tight times.
//
// Output and status of the commands leave through a virtio serial port of
// their own, so that kernel messages never mix with them; package
// tools/internal/guest/wire is its format.
//
// Documents: the kernel's filesystems/ramfs-rootfs-initramfs and
// driver-api/early-userspace/buffer-format (cpio), qemu-system(1).
package guest
