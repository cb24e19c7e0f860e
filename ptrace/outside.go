//go:build !race

package ptrace

import _ "unsafe" // for go:linkname

//go:linkname leave runtime.entersyscallblock
func leave()

//go:linkname enter runtime.exitsyscall
func enter()
