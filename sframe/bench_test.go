package sframe

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"

	"sfsample/internal/sframetest"
)

// benchSizes are the numbers of functions of the sections looked up in.
var benchSizes = []int{10, 10_000, 1_000_000}

// benchSection opens a section of n functions and returns addresses in it.
func benchSection(b *testing.B, n int) (*Section, []uint64) {
	b.Helper()
	section := bigSection(3, n, 5)
	data := section.Bytes()
	s, err := Open(bytes.NewReader(data), section.Addr, uint64(len(data)))
	if err != nil {
		b.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(uint64(n), 7))
	pcs := make([]uint64, 10_000)
	for i := range pcs {
		f := &section.Funcs[rnd.IntN(n)]
		pcs[i] = f.Start + rnd.Uint64N(uint64(f.Size))
	}
	return s, pcs
}

// BenchmarkLookup: cold is the search through table and rows, warm the answer
// for an address asked before: the same one, or 10,000 different ones in turn.
func BenchmarkLookup(b *testing.B) {
	for _, n := range benchSizes {
		s, pcs := benchSection(b, n)
		b.Run(fmt.Sprintf("cold/fdes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				if _, err := s.Find(pcs[i%len(pcs)]); err != nil {
					b.Fatal(err)
				}
			}
		})
		for _, pc := range pcs {
			s.Row(pc)
		}
		b.Run(fmt.Sprintf("warm/fdes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if _, err := s.Row(pcs[0]); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("warm/fdes=%d/addresses=%d", n, len(pcs)), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for range b.N {
				if _, err := s.Row(pcs[i]); err != nil {
					b.Fatal(err)
				}
				if i++; i == len(pcs) {
					i = 0
				}
			}
		})
	}
}

// BenchmarkFunction: decoding all of a function with 1,000 rows, and a cold
// look-up of its last row.
func BenchmarkFunction(b *testing.B) {
	section := &sframetest.Section{Version: 3, Flags: sframetest.Sorted, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x400000}
	f := sframetest.Func{Start: 0x500000, Size: 8000, Width: 2}
	for j := range 1000 {
		f.Rows = append(f.Rows, sframetest.Row{Off: uint32(8 * j), SP: true, WordBytes: 1, Words: []int64{int64(8 * (j % 15)), -16}})
	}
	section.Funcs = append(section.Funcs, f)
	data := section.Bytes()
	s, err := Open(bytes.NewReader(data), section.Addr, uint64(len(data)))
	if err != nil {
		b.Fatal(err)
	}
	fn, err := s.Func(f.Start)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("decode/rows=1000", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			n := 0
			for _, err := range s.Rows(&fn) {
				if err != nil {
					b.Fatal(err)
				}
				n++
			}
			if n != 1000 {
				b.Fatal(n)
			}
		}
	})
	b.Run("last/rows=1000", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := s.Find(f.Start + uint64(f.Size) - 1); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkMemory is what 1,000 functions cost in memory when all their rows were
// looked up: measured at the heap, and as the section estimates it.
func BenchmarkMemory(b *testing.B) {
	section := bigSection(3, 1000, 5)
	data := section.Bytes()
	var heap, estimate float64
	for b.Loop() {
		s, err := Open(bytes.NewReader(data), section.Addr, uint64(len(data)))
		if err != nil {
			b.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range section.Funcs {
			for _, r := range section.Funcs[i].Rows {
				if _, err := s.Row(section.Funcs[i].Start + uint64(r.Off)); err != nil {
					b.Fatal(err)
				}
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		heap = float64(after.HeapAlloc) - float64(before.HeapAlloc)
		estimate = float64(s.CacheBytes())
		runtime.KeepAlive(s)
	}
	b.ReportMetric(heap, "heap-bytes/1000funcs")
	b.ReportMetric(estimate, "estimate-bytes/1000funcs")
}

// BenchmarkOpen is what a module costs that is never asked.
func BenchmarkOpen(b *testing.B) {
	section := bigSection(3, 10_000, 5)
	data := section.Bytes()
	b.ReportAllocs()
	for range b.N {
		if _, err := Open(bytes.NewReader(data), section.Addr, uint64(len(data))); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFile looks up every 37th address of a real section, to be held beside
// other readers on the same one (bench/libsframe): SFRAME_BENCH names a file with the section's
// bytes, SFRAME_BENCH_ADDR is its address (hexadecimal). The program bench/libsframe/run sets both.
func BenchmarkFile(b *testing.B) {
	path := os.Getenv("SFRAME_BENCH")
	if path == "" {
		b.Skip("SFRAME_BENCH names no section")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	addr, err := strconv.ParseUint(os.Getenv("SFRAME_BENCH_ADDR"), 16, 64)
	if err != nil {
		b.Fatal(err)
	}
	s, err := Open(bytes.NewReader(data), addr, uint64(len(data)))
	if err != nil {
		b.Fatal(err)
	}
	var pcs []uint64
	for f, err := range s.Funcs() {
		if err != nil {
			b.Fatal(err)
		}
		for off := uint64(0); off < uint64(f.Size) && len(pcs) < 1<<20; off += 37 {
			pcs = append(pcs, f.Start+off)
		}
	}
	// A step that is prime to the number of addresses visits all of them.
	step := len(pcs)*5/8 | 1
	for gcd(step, len(pcs)) != 1 {
		step += 2
	}
	for _, mode := range []string{"cold", "warm"} {
		b.Run(fmt.Sprintf("%s/addresses=%d", mode, len(pcs)), func(b *testing.B) {
			if mode == "warm" {
				for _, pc := range pcs {
					s.Row(pc)
				}
				b.ResetTimer()
			}
			b.ReportAllocs()
			at, hits := 0, 0
			for range b.N {
				if mode == "cold" {
					if _, err = s.Find(pcs[at]); err == nil {
						hits++
					}
				} else if _, err = s.Row(pcs[at]); err == nil {
					hits++
				}
				if at += step; at >= len(pcs) {
					at -= len(pcs)
				}
			}
			b.ReportMetric(100*float64(hits)/float64(b.N), "%hits")
		})
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
