//go:build arm64 || s390x

package sampler

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"sfsample/internal/testprog"
	"sfsample/output"
)

// compat is the 32-bit architecture that a kernel may run besides its own.
var compat = map[string]struct {
	name        string
	machine     elf.Machine
	data        elf.Data
	order       binary.ByteOrder
	flags       uint32
	spin, pause []byte // code
	end         string // what a stack says of itself
}{
	"arm64": {"32-bit arm", elf.EM_ARM, elf.ELFDATA2LSB, binary.LittleEndian,
		0x0500_0000,                    // EABI version 5 (ELF for the Arm Architecture)
		[]byte{0xfe, 0xff, 0xff, 0xea}, // b .
		[]byte{0x1d, 0x70, 0xa0, 0xe3, 0, 0, 0, 0xef, 0xfc, 0xff, 0xff, 0xea}, // mov r7, #29; svc 0; b .-8
		"32-bit arm code"},
	"s390x": {"31-bit", elf.EM_S390, elf.ELFDATA2MSB, binary.BigEndian, 0,
		[]byte{0xa7, 0xf4, 0, 0},                   // j .
		[]byte{0x0a, 0x1d, 0xa7, 0xf4, 0xff, 0xff}, // svc 29; j .-2
		"31-bit mode"},
}[runtime.GOARCH]

// compatProgram writes a 32-bit ELF file of one segment with this code.
func compatProgram(t *testing.T, code []byte) string {
	t.Helper()
	const base, headers = 0x10000, 52 + 32
	size := uint32(headers + len(code))
	var b bytes.Buffer
	h := elf.Header32{
		Type: uint16(elf.ET_EXEC), Machine: uint16(compat.machine), Version: 1, Entry: base + headers,
		Phoff: 52, Flags: compat.flags, Ehsize: 52, Phentsize: 32, Phnum: 1,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS32), byte(compat.data), 1
	p := elf.Prog32{
		Type: uint32(elf.PT_LOAD), Vaddr: base, Paddr: base, Filesz: size, Memsz: size,
		Flags: uint32(elf.PF_R | elf.PF_X), Align: 0x1000,
	}
	for _, v := range []any{&h, &p, code} {
		if err := binary.Write(&b, compat.order, v); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "compat")
	if err := os.WriteFile(path, b.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// first is a sink that keeps one stack.
type first struct {
	stack *output.Stack
	done  func()
}

// Add implements output.Sink.
func (f *first) Add(s *output.Sample) error {
	if f.stack == nil && (s.Taken == "stop" || s.Taken == "no stop") {
		f.stack = s.Stack
		f.done()
	}
	return nil
}

// Close implements output.Sink.
func (f *first) Close() error { return nil }

// TestCompat: code of the 32-bit architecture is not unwound, and its stack
// says why, whether the thread runs or is blocked.
func TestCompat(t *testing.T) {
	for name, code := range map[string][]byte{"runs": compat.spin, "blocked": compat.pause} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(compatProgram(t, code))
			switch err := cmd.Start(); {
			case errors.Is(err, syscall.ENOEXEC):
				t.Skipf("this kernel runs no %s programs", compat.name)
			case err != nil:
				t.Fatal(err)
			}
			t.Cleanup(func() {
				cmd.Process.Kill()
				cmd.Wait()
			})
			ctx, cancel := context.WithTimeout(context.Background(), 5*testprog.Patience)
			defer cancel()
			f := &first{done: cancel}
			opt := Options{PIDs: []int{cmd.Process.Pid}, Hz: 20, All: true, WallWeight: true}
			if _, err := Run(ctx, opt, 0, testPipeline(f), nil, nil); err != nil {
				t.Fatal(err)
			}
			if f.stack == nil || len(f.stack.Frames) != 1 || f.stack.End != compat.end {
				t.Errorf("stack %+v, want one frame and %q", f.stack, compat.end)
			}
		})
	}
}
