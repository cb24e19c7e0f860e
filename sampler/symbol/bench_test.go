package symbol

import (
	"bytes"
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkLookup asks a table of a million functions for addresses that were
// asked for before.
func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{3_000, 1_000_000} {
		b.Run(fmt.Sprintf("syms=%d", n), func(b *testing.B) {
			e := testELF{class: elf.ELFCLASS64, order: kinds[0].order, machine: elf.EM_X86_64,
				text: []span{{0x1000, 0x1000 + uint64(n)*128}}}
			for i := range n {
				e.syms = append(e.syms, fn(fmt.Sprintf("function_number_%d", i), 0x1000+uint64(i)*128, 100))
			}
			o := e.open(Options{})
			rnd := rand.New(rand.NewPCG(7, 8))
			addrs := make([]uint64, 4096)
			for i := range addrs {
				addrs[i] = 0x1000 + rnd.Uint64N(uint64(n))*128 + 50
				if _, ok := o.Lookup(addrs[i]); !ok {
					b.Fatal("no name")
				}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				o.Lookup(addrs[i%len(addrs)])
				i++
			}
		})
	}
}

// BenchmarkOpen opens a library and names one address of it.
func BenchmarkOpen(b *testing.B) {
	for _, pattern := range []string{"/lib/*-linux-gnu/libc.so.6", "/usr/lib/*-linux-gnu/libstdc++.so.6", "/usr/bin/node"} {
		names, _ := filepath.Glob(pattern)
		if len(names) == 0 {
			continue
		}
		data, err := os.ReadFile(names[0])
		if err != nil {
			b.Fatal(err)
		}
		addr := randomText(b, names[0], 1)[0]
		b.Run(filepath.Base(names[0]), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				o := Open(bytes.NewReader(data), names[0], Options{})
				o.Lookup(addr)
				o.Close()
			}
		})
	}
}
