package module

import (
	"fmt"
	"testing"

	"sfsample/unwind"
)

// manySpace is a Space of n objects, each at its own megabyte.
func manySpace(n uint64) *Space {
	p := new(process)
	for i := range n {
		im := image{buildID: fmt.Sprintf("%08d", i), cfa: 8, sframe: 3}
		b := im.bytes()
		for _, r := range [][2]uint64{{0, 4}, {imgText, 5}, {imgData, 6}} {
			m := memory{libAt + i<<20 + r[0], b[r[0] : r[0]+0x1000]}
			p.mem = append(p.mem, m)
			p.mapAtEnd(m, r[0], r[1], i+1)
		}
	}
	return NewSpace(p, NewCache(0), Options{})
}

func (p *process) mapAtEnd(m memory, off, perms, inode uint64) {
	q := new(process)
	q.mapAt(m.start, 0, nil, off, 0x1000, inode, fmt.Sprintf("/lib/%d.so", inode))
	for i, bit := range []uint64{4, 2, 1} {
		if perms&bit != 0 {
			q.maps[0].Perms |= 1 << i
		}
	}
	p.maps = append(p.maps, q.maps[0])
}

func BenchmarkExecutable(b *testing.B) {
	for _, n := range []uint64{10, 1000} {
		b.Run(fmt.Sprintf("modules=%d", n), func(b *testing.B) {
			s := manySpace(n)
			if err := s.Refresh(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			i := uint64(0)
			for b.Loop() {
				if i = (i + 7) % n; !s.Executable(codeAt + i<<20) {
					b.Fatal(i)
				}
			}
		})
	}
}

// BenchmarkRow is a question that the walk's own cache did not answer.
func BenchmarkRow(b *testing.B) {
	for _, how := range []unwind.How{unwind.SFrame, unwind.EHFrame} {
		b.Run(how.String(), func(b *testing.B) {
			s := manySpace(10)
			b.ReportAllocs()
			i := uint64(0)
			for b.Loop() {
				if i = (i + 7) % 10; cfaOfFast(s, codeAt+i<<20, how) == 0 {
					b.Fatal(i)
				}
			}
		})
	}
}

func cfaOfFast(s *Space, pc uint64, how unwind.How) int32 {
	r, err := s.Row(pc, how)
	if err != nil {
		return 0
	}
	return r.CFA.Offset
}

// BenchmarkRefresh reads the mappings anew when nothing has changed.
func BenchmarkRefresh(b *testing.B) {
	for _, n := range []uint64{10, 100} {
		b.Run(fmt.Sprintf("modules=%d", n), func(b *testing.B) {
			s := manySpace(n)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Refresh(); err != nil {
					b.Fatal(err)
				}
			}
			if s.Generation() != 2 {
				b.Fatal("something changed")
			}
		})
	}
}
