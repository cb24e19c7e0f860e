package syscalls

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The numbers are from the kernel's tables: arch/x86/entry/syscalls/
// syscall_{32,64}.tbl, include/uapi/asm-generic/unistd.h,
// arch/s390/kernel/syscalls/syscall.tbl.
func TestName(t *testing.T) {
	tests := []struct {
		arch string
		nr   int64
		want string
	}{
		{"amd64", 0, "read"},
		{"amd64", 202, "futex"},
		{"amd64", 232, "epoll_wait"},
		{"amd64", 219, "restart_syscall"},
		{"amd64", 462, "mseal"},
		{"386", 3, "read"},
		{"386", 0, "restart_syscall"},
		{"386", 240, "futex"},
		{"386", 422, "futex_time64"},
		{"arm64", 63, "read"},
		{"arm64", 98, "futex"},
		{"arm64", 22, "epoll_pwait"},
		{"s390x", 3, "read"},
		{"s390x", 238, "futex"},
		{"s390x", 251, "epoll_wait"},
		{"amd64", -1, ""},
		{"amd64", 400, ""}, // no call between 334 and 424
		{"amd64", 1 << 40, ""},
		{"s390x", 0, ""},
		{"mips", 1, ""},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s/%d", tt.arch, tt.nr), func(t *testing.T) {
			got, ok := Name(tt.arch, tt.nr)
			if got != tt.want || ok != (tt.want != "") {
				t.Errorf("Name(%q, %d) = %q, %v; want %q", tt.arch, tt.nr, got, ok, tt.want)
			}
		})
	}
}

// The committed table is what the generator writes today.
func TestTablesAreCurrent(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command on this machine")
	}
	if _, err := os.Stat("gen.go"); err != nil {
		t.Skip("no sources on this machine")
	}
	name := filepath.Join(t.TempDir(), "tables.out") // go run takes names in .go for sources
	if out, err := exec.Command("go", "run", "gen.go", name).CombinedOutput(); err != nil {
		t.Fatalf("go run gen.go: %v\n%s", err, out)
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("tables.go")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("tables.go is out of date (run: go generate ./sampler/syscalls)")
	}
}

func ExampleName() {
	name, _ := Name("arm64", 98)
	fmt.Println(name)
	// Output: futex
}
