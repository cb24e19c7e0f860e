package sampler

import (
	"sfsample/regs"
	"sfsample/sampler/syscalls"
)

// A stop ends a transfer that is under way, as any signal does: the call returns what it has moved so far. Nobody can
// take that back, so it is counted.

// transfers are system calls that move all that they are asked for unless something ends them early, with the number of the
// argument that says how much. Reads are not among them: those end where the data does.
var transfers = map[string]int{
	"write": 2, "pwrite64": 2, "sendto": 2, "getrandom": 1, "sendfile": 3, "sendfile64": 3, "splice": 4, "tee": 2, "copy_file_range": 4,
}

// shortened tells whether a thread was stopped behind a transfer that has moved less than it was asked for. code reads
// the program's instructions.
func shortened(u *regs.User, code func(pc uint64, b []byte) int) bool {
	if u.Ret <= 0 {
		return false
	}
	name, _ := syscalls.Name(u.Arch.Name, callBehind(u, code))
	i, ok := transfers[name]
	if !ok {
		return false
	}
	asked, ok := u.Set.Reg(u.Arch.CallArgs[i])
	return ok && uint64(u.Ret) < asked
}

func isTransfer(name string) bool { _, ok := transfers[name]; return ok }

// callBehind is the number of the system call that a thread is right behind, -1 if it is behind none. Where the
// registers do not tell, the instruction before does: svc #0 with the number in x8 (arch/arm64/kernel/syscall.c), svc with the number in it,
// or in r1 if that is 0 (arch/s390/kernel/syscall.c).
func callBehind(u *regs.User, code func(pc uint64, b []byte) int) int64 {
	var b [4]byte
	switch u.Arch {
	case regs.ARM64:
		nr, ok := u.Set.Reg(8)
		if name, _ := syscalls.Name(u.Arch.Name, int64(nr)); !ok || !isTransfer(name) || code(u.Set.PC-4, b[:]) != 4 || b != [4]byte{0x01, 0, 0, 0xd4} {
			return -1
		}
		return int64(nr)
	case regs.S390X:
		nr, ok := u.Set.Reg(1)
		if code(u.Set.PC-2, b[:2]) != 2 || b[0] != 0x0a {
			return -1
		}
		if b[1] != 0 {
			return int64(b[1])
		}
		if !ok {
			return -1
		}
		return int64(nr)
	}
	return u.Syscall
}
