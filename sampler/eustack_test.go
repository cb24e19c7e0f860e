package sampler

import (
	"bufio"
	"bytes"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sfsample/internal/testprog"
	"sfsample/unwind"
)

// euStacks are the return addresses that eu-stack finds, by thread.
func euStacks(t *testing.T, pid int) map[int][]uint64 {
	t.Helper()
	var errs bytes.Buffer
	cmd := exec.Command("eu-stack", "-q", "-n", "0", "-p", strconv.Itoa(pid))
	cmd.Stderr = &errs
	// It fails for a thread whose outermost frame it does not know as such.
	out, err := cmd.Output()
	stacks := map[int][]uint64{}
	tid := 0
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		f := strings.Fields(s.Text())
		switch {
		case len(f) == 2 && f[0] == "TID":
			tid, _ = strconv.Atoi(strings.TrimSuffix(f[1], ":"))
		case len(f) >= 2 && f[0][0] == '#' && tid != 0:
			pc, err := strconv.ParseUint(strings.TrimPrefix(f[1], "0x"), 16, 64)
			if err != nil {
				t.Fatalf("line %q: %v", s.Text(), err)
			}
			stacks[tid] = append(stacks[tid], pc)
		}
	}
	if len(stacks) == 0 {
		t.Fatalf("eu-stack: %v\n%s", err, errs.String())
	}
	return stacks
}

// TestEUStack compares the stacks of blocked threads with those of eu-stack,
// which goes by .eh_frame.
func TestEUStack(t *testing.T) {
	if _, err := exec.LookPath("eu-stack"); err != nil {
		t.Skip("no eu-stack on this machine")
	}
	var all []*parked
	for _, v := range testprog.Variants(t, runtime.GOARCH, "deep") {
		if method(v) != "eh_frame" {
			continue
		}
		for _, depth := range []string{"3", "12"} {
			all = append(all, park(t, v, "deep", "b", depth))
		}
	}
	// 16 kinds of call: the 17th is vfork's, whose thread does not stop.
	for range 12 {
		all = append(all, park(t, "ehframe", "blocked", "16"))
	}
	got := sampleAll(t, nil, all)
	same, frames := 0, 0
	for _, p := range all {
		eu := euStacks(t, p.PID)
		for tid := range p.stacks() {
			for _, s := range got[tid] {
				if s.End == unwind.UnknownRegister.String() && mustNotStop(s.Frames[0].Func) {
					continue
				}
				var pcs []uint64
				for _, f := range s.Frames {
					pcs = append(pcs, f.PC)
				}
				if !slices.Equal(pcs, eu[tid]) {
					t.Errorf("%s, thread %d: %#x, eu-stack has %#x", p.name, tid, pcs, eu[tid])
					continue
				}
				same, frames = same+1, frames+len(pcs)
			}
		}
	}
	t.Logf("%d stacks of %d frames are those of eu-stack", same, frames)
	if same < 100 {
		t.Errorf("only %d stacks were compared, want 100", same)
	}
}
