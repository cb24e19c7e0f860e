package sampler

import (
	"runtime"
	"slices"
	"testing"

	"sfsample/internal/testprog"
	"sfsample/unwind"
)

// TestGeneratedCode samples programs that run code which they have written: it has no table,
// but frame pointers or what it tells debuggers, or nothing at all.
func TestGeneratedCode(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the generated code is x86-64")
	}
	path := testprog.Compile(t, []string{"-O1", "-rdynamic"}, "generated.c")
	tests := []struct {
		mode string
		end  string
		code []string // the methods that found the frames of generated code
		next string   // the one that found outer; "": what is missing is shown before it
	}{
		{"jump", "", []string{"regs", "fp"}, "fp"},
		{"told", "", []string{"regs"}, "eh_frame"},
		{"ring", "", []string{"regs"}, "eh_frame"},
		{"lost", unwind.FramesMissing.String(), []string{"regs", ""}, "gap"},
	}
	for _, tt := range tests {
		t.Run(tt.mode, func(t *testing.T) {
			p := testprog.Start(t, path, tt.mode)
			st := sampleUntilEnd(t, p.PID, tt.end, func(f []string) bool { return len(f) > 0 && f[0] == "" })
			var hows, rest []string
			for i, f := range st.Frames {
				if i < len(tt.code) {
					hows = append(hows, f.How)
				} else {
					rest = append(rest, f.Func)
				}
			}
			if !slices.Equal(hows, tt.code) || len(rest) < 3 || rest[0] != "outer" || rest[1] != "main" || rest[len(rest)-1] != "_start" ||
				st.Frames[len(tt.code)].How != tt.next {
				t.Errorf("found by %q, then %q; want %q, then outer found by %s, main, _start", hows, rest, tt.code, tt.next)
			}
			if tt.end != "" && st.Frames[1].Func != "[frames missing]" {
				t.Errorf("%q stands for what is missing", st.Frames[1].Func)
			}
		})
	}
}

// TestWrongRow samples a program whose table is wrong: the code tells, from the same registers.
func TestWrongRow(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the wrong table is of x86-64 code")
	}
	p := testprog.Start(t, testprog.Compile(t, []string{"-O1"}, "wrongrow.c"))
	st := sampleUntil(t, p.PID, func(f []string) bool { return f[0] == "wrong" })
	if f := st.Frames; len(f) < 4 || f[1].Func != "outer" || f[1].How != unwind.Code.String() || f[2].Func != "main" {
		t.Errorf("frames %v, want outer found by code, then main", f)
	}
}
