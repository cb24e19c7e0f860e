package procfs_test

import (
	"fmt"

	"sfsample/ptrace/procfs"
)

// Lists the code of a process and what its threads wait for.
func Example() {
	proc := procfs.FS{Root: "testdata/proc"} // FS{} is the machine's own
	maps, err := proc.Maps(4242, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range maps {
		if m.Perms&procfs.Exec != 0 {
			fmt.Printf("%#x %v %s\n", m.Start, m.Perms, m.Path)
		}
	}
	tid, err := proc.LiveTask(4242)
	fmt.Println(tid, err)
	call, err := procfs.ParseSyscall([]byte("232 0x4 0x7ffe00 0x2 0x0 0x0 0x8 0x7ffdf8 0x7ffff7\n"))
	fmt.Println(call.NR, call.Args[0], err)
	// Output:
	// 0x555555555000 r-xp /srv/worker
	// 0x7ffff7fc1000 r-xp [vdso]
	// 4243 <nil>
	// 232 4 <nil>
}
