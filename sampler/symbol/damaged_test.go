package symbol

import (
	"bytes"
	"debug/elf"
	"math/rand/v2"
	"os"
	"testing"
)

// Whatever the debugging information of a file says, every address gets an
// answer, in bounded room: it comes from the target.
func TestDamagedDWARF(t *testing.T) {
	name := build(t, "g++", "testdata/inlines.cc")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	addrs := randomText(t, name, 20)
	rnd := rand.New(rand.NewPCG(11, 12))
	for _, section := range []string{"info", "abbrev", "line", "rnglists", "str"} {
		s := f.Section(".debug_" + section)
		if s == nil {
			continue
		}
		answers := 0
		for range 60 {
			b := bytes.Clone(whole)
			part := b[s.Offset : s.Offset+s.FileSize]
			for range 1 + rnd.IntN(20) {
				part[rnd.IntN(len(part))] = byte(rnd.Uint32())
			}
			o := Open(bytes.NewReader(b), name, allNames)
			for _, addr := range addrs {
				for _, fr := range o.Frames(addr) {
					answers += len(fr.Name)
				}
			}
			if n := o.Bytes(); n > 64<<20 {
				t.Errorf("damaged .debug_%s: %d bytes are held", section, n)
			}
			o.Close()
		}
		if answers == 0 {
			t.Errorf("damaged .debug_%s: no names at all", section)
		}
	}
}
