package ehframe_test

import (
	"debug/elf"
	"errors"
	"runtime"
	"testing"

	"sfsample/internal/testprog"
	"sfsample/regs"
	"sfsample/sframe"
	"sfsample/sframe/ehframe"
)

// repeated is an image that has the same bytes again and again. It counts what is read.
type repeated struct {
	unit []byte
	read int
}

func (r *repeated) ReadAt(b []byte, off int64) (int, error) {
	r.read += len(b)
	for i := range b {
		b[i] = r.unit[(off+int64(i))%int64(len(r.unit))]
	}
	return len(b), nil
}

// TestScanIsBounded: a section without an index that has nothing of use in it is not read to its end.
func TestScanIsBounded(t *testing.T) {
	damaged := []byte{4, 0, 0, 0, 0xff, 0, 0, 0} // an FDE whose CIE lies before the section
	for name, tt := range map[string]struct {
		unit []byte
		most int
	}{"zeros": {make([]byte, 8), 1 << 20}, "damaged entries": {damaged, 1 << 20}} {
		t.Run(name, func(t *testing.T) {
			img := &repeated{unit: tt.unit}
			tab, err := ehframe.Open(img, regs.AMD64, ehframe.Sections{FrameAddr: 8 << 20, FrameSize: 64 << 20})
			if err != nil {
				t.Fatal(err)
			}
			var bad *sframe.FormatError
			for range 2 {
				if _, err := tab.Row(0x1000); !errors.As(err, &bad) || img.read > tt.most {
					t.Errorf("error %v, %d bytes read, want %d at most", err, img.read, tt.most)
				}
			}
		})
	}
}

// TestScanOver: a section without an index is not read once there is no time; nor is it held for damaged.
func TestScanOver(t *testing.T) {
	img := &repeated{unit: []byte{4, 0, 0, 0, 0xff, 0, 0, 0}}
	asked, over := 0, 3
	tab, err := ehframe.Open(img, regs.AMD64, ehframe.Sections{FrameAddr: 8 << 20, FrameSize: 256 << 10, Over: func() bool {
		asked++
		return asked >= over
	}})
	if err != nil {
		t.Fatal(err)
	}
	var bad *sframe.FormatError
	if _, err := tab.Row(0x1000); err == nil || errors.Is(err, sframe.ErrNoRow) || errors.As(err, &bad) || asked != over || img.read > 64<<10 {
		t.Errorf("error %v after %d looks at the time, %d bytes read", err, asked, img.read)
	}
	asked, over = 0, 1<<20
	if _, err := tab.Row(0x1000); !errors.As(err, &bad) || asked == 0 || img.read < 256<<10 {
		t.Errorf("with time: error %v after %d looks, %d bytes read", err, asked, img.read)
	}
}

// TestDynamicIsBounded: a dynamic section of 64 MB, which no linker writes, is not read.
func TestDynamicIsBounded(t *testing.T) {
	f := openELF(t, testprog.Sparse(t, testprog.Committed(t, "amd64", "ehframe", "deep"), 0,
		testprog.Section{Name: ".dynamic", Type: elf.SHT_DYNAMIC, Size: 64 << 20}))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := ehframe.ELFSections(f)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; s.FrameSize == 0 || took > 1<<20 {
		t.Errorf("%+v: %d bytes, want 1 MB at most", s, took)
	}
}
