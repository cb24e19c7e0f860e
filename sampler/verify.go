package sampler

import (
	"fmt"
	"maps"
	"slices"

	"sfsample/regs"
	"sfsample/sampler/capture"
	"sfsample/unwind"
)

// maxDifferences bounds the distinct differences that are kept.
const maxDifferences = 10000

// farFP is a distance from the stack pointer that no frame pointer has.
const farFP = 1 << 20

// verifyWalk asks at each frame of a capture every two methods that have a row
// there, and counts where their answers differ.
func (ws *walks) verifyWalk(t *target, c *capture.Capture, u *regs.User) {
	ws.load(c)
	t.walker(u.Arch, c.Regs.PACMask, ws.cfg).Verify(&u.Set, &ws.mem, func(d unwind.Difference) {
		if k := ws.difference(t, c, d); ws.differences[k] > 0 || len(ws.differences) < maxDifferences {
			ws.differences[k]++
		}
	})
}

// difference describes a difference by what stays the same between stacks: the
// code address, and the answers relative to the frame's stack pointer.
func (ws *walks) difference(t *target, c *capture.Capture, d unwind.Difference) string {
	where := fmt.Sprintf("%#x", d.Frame.PC)
	if m, vaddr, ok := t.space.Module(d.Frame.LookupPC()); ok {
		where = fmt.Sprintf("%s (build-id %s) at %#x", m.Path, m.BuildID, vaddr)
		if s := ws.cfg.Names.function(t.names, m, vaddr); s != "" {
			where += " in " + s
		}
	}
	return fmt.Sprintf("%s: %s; %s", where, t.answer(d.A, d.Frame.SP), t.answer(d.B, d.Frame.SP))
}

func (t *target) answer(a unwind.Answer, sp uint64) string {
	if a.Reason != 0 {
		return fmt.Sprintf("%v: %v", a.How, a.Reason)
	}
	pc := fmt.Sprintf("%#x", a.PC)
	if m, vaddr, ok := t.space.Module(a.PC - 1); ok {
		pc = fmt.Sprintf("%s+%#x", m.Name(), vaddr+1)
	}
	text := fmt.Sprintf("%v: return to %s, sp %+d", a.How, pc, int64(a.SP-sp))
	switch fp := int64(a.FP - sp); {
	case !a.FPKnown:
	case -farFP < fp && fp < farFP:
		text += fmt.Sprintf(", fp %+d", fp)
	default:
		text += ", fp elsewhere" // no frame pointer: another value in each stack
	}
	return text
}

// Differences lists what --verify found, each with how often, most frequent
// first. Call it when the run is over.
func (p *Pipeline) Differences() []string {
	keys := slices.Sorted(maps.Keys(p.walks.differences))
	slices.SortStableFunc(keys, func(a, b string) int { return int(p.walks.differences[b] - p.walks.differences[a]) })
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%d times: %s", p.walks.differences[k], k)
	}
	return keys
}
