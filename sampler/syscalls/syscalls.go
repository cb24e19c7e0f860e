package syscalls

// Name returns the name of system call number nr of an architecture (GOARCH
// name, "386" for 32-bit threads of x86-64), such as "epoll_wait". It is false
// for a number or architecture that has none.
func Name(arch string, nr int64) (string, bool) {
	t := tables[arch]
	if nr < 0 || nr >= int64(len(t)) || t[nr] == "" {
		return "", false
	}
	return t[nr], true
}
