package ehframe_test

import (
	"runtime"
	"testing"

	"sfsample/sframe/ehframe"
)

// benchTable is a real library's table where there is one.
func benchTable(b *testing.B) (open func() *ehframe.Table, pcs []uint64) {
	img, arch, s := bigSection(b, 10000)
	for _, name := range systemFiles[:1] {
		f, a, sec := loadELF(b, name)
		img, arch, s = f, a, sec
	}
	open = func() *ehframe.Table {
		tab, err := ehframe.Open(img, arch, s)
		if err != nil {
			b.Fatal(err)
		}
		return tab
	}
	for fn, err := range open().Funcs() {
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range fn.Entries {
			pcs = append(pcs, e.End-1)
		}
	}
	return open, pcs
}

// BenchmarkRow is a warm lookup, over that many distinct addresses.
func BenchmarkRow(b *testing.B) {
	for _, n := range []struct {
		name string
		pcs  int
	}{{"pcs=200", 200}, {"pcs=10000", 10000}} {
		b.Run(n.name, func(b *testing.B) {
			open, pcs := benchTable(b)
			step := len(pcs) / n.pcs
			some := make([]uint64, n.pcs)
			for i := range some {
				some[i] = pcs[i*step]
			}
			tab := open()
			for _, pc := range some {
				if _, err := tab.Row(pc); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := tab.Row(some[i]); err != nil {
					b.Fatal(err)
				}
				if i++; i == len(some) {
					i = 0
				}
			}
		})
	}
}

// BenchmarkRowCold finds and compiles a function not seen before, one operation
// for each function of the library.
func BenchmarkRowCold(b *testing.B) {
	open, pcs := benchTable(b)
	byFunc := pcs[:0:0]
	tab := open()
	var last uint64
	for _, pc := range pcs {
		if e, err := tab.Find(pc); err == nil && e.FuncStart != last {
			last = e.FuncStart
			byFunc = append(byFunc, pc)
		}
	}
	b.ReportAllocs()
	i := len(byFunc)
	for b.Loop() {
		if i == len(byFunc) {
			b.StopTimer()
			tab, i = open(), 0
			b.StartTimer()
		}
		if _, err := tab.Row(byFunc[i]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkMemory is what 1,000 functions cost in memory when all their rows were
// looked up: measured at the heap, and as the table estimates it.
func BenchmarkMemory(b *testing.B) {
	open, pcs := benchTable(b)
	var heap, estimate float64
	for b.Loop() {
		tab := open()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		funcs, last := 0, uint64(0)
		for _, pc := range pcs {
			e, err := tab.Find(pc)
			if err != nil {
				b.Fatal(err)
			}
			if e.FuncStart != last {
				last = e.FuncStart
				if funcs++; funcs > 1000 {
					break
				}
			}
			if _, err := tab.Row(pc); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		heap = float64(after.HeapAlloc) - float64(before.HeapAlloc)
		estimate = float64(tab.CacheBytes())
		runtime.KeepAlive(tab)
	}
	b.ReportMetric(heap, "heap-bytes/1000funcs")
	b.ReportMetric(estimate, "estimate-bytes/1000funcs")
}
