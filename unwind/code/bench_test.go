package code

import "testing"

// BenchmarkFollow asks for instructions of the machine's C library: as they are executed, and as
// places of return. Nothing is kept between questions, so that each is what a place costs that was not
// met before. Its figures are ns/answer, none included, and the share of places that have a row.
func BenchmarkFollow(b *testing.B) {
	p := openProgram(b, "/usr/lib/x86_64-linux-gnu/libc.so.6")
	if p == nil {
		b.Skip("no such C library on this machine")
	}
	m := machines[p.arch.Name]
	places := map[string][]Place{}
	n := 0
	for fn, err := range p.table.Funcs() {
		if n++; err != nil || n%10 != 0 {
			continue
		}
		var code [32]byte
		for pc := fn.Start; pc < fn.End; {
			var s state
			in := m.step(code[:p.read(pc, code[:])], pc, &s)
			if in.size == 0 {
				break
			}
			places["executed"] = append(places["executed"], Place{PC: pc, Ends: p.ends})
			if pc += uint64(in.size); in.flow == call && pc < fn.End {
				places["returned"] = append(places["returned"], Place{PC: pc, Caller: true, Ends: p.ends})
			}
		}
	}
	for name, list := range places {
		b.Run(name, func(b *testing.B) {
			found, i := 0, 0
			b.ReportAllocs()
			for ; b.Loop(); i++ {
				// A stride without a common divisor: a short run meets all parts of the library.
				if _, err := Follow(p.arch, list[i*7919%len(list)], p.read); err == nil {
					found++
				}
			}
			b.ReportMetric(100*float64(found)/float64(i), "%found")
		})
	}
}
