package runtimes

import (
	"encoding/binary"
	"testing"
)

// hotspotMemory is a method in memory of 0x1000 bytes at 0x1000, as hotspotLayouts(false) has it: Method, ConstMethod, ConstantPool, Klass and two Symbols.
func hotspotMemory() []byte {
	b := make([]byte, 0x1000)
	put := func(at int, v uint64) { binary.NativeEndian.PutUint64(b[at:], v) }
	put(0x108, 0x1200)
	put(0x138, 0x1f00)
	put(0x208, 0x1300)
	binary.NativeEndian.PutUint16(b[0x220:], 5)
	binary.NativeEndian.PutUint16(b[0x222:], 1)
	put(0x318, 0x1400)
	put(0x350, 0x1500)
	put(0x418, 0x1600)
	for at, text := range map[int]string{0x500: "run", 0x600: "Made1"} {
		binary.NativeEndian.PutUint16(b[at+4:], uint16(len(text)))
		copy(b[at+6:], text)
	}
	return b
}

// TestHotSpotUnloaded: a class that has the place of another one, and differs from it by its name alone, has its own name.
func TestHotSpotUnloaded(t *testing.T) {
	littleEndian(t)
	b := hotspotMemory()
	h := &hotspot{mem: rubbish(b), lay: hotspotLayouts(false), methods: map[uint64]*hotspotMethod{}}
	f := &Frame{Code: 0x1100}
	name := func(k Key) string {
		fn, ok := h.Function(h.mem, f, k)
		if !ok {
			return ""
		}
		return fn.Name
	}
	h.epoch++
	before, ok := h.Key(nil, h.mem, f)
	if got := name(before); !ok || got != "Made1.run" {
		t.Fatalf("%q, %v", got, ok)
	}
	for _, change := range []struct {
		at   int
		want string
	}{{0x60a, "Made2.run"}, {0x506, "Made2.2un"}} {
		b[change.at] = '2'
		h.epoch++
		now, ok := h.Key(nil, h.mem, f)
		if got, old := name(now), name(before); !ok || now == before || got != change.want || old != "" {
			t.Errorf("%q and, by its key of before, %q, want %q and none; %v", got, old, change.want, ok)
		}
		before = now
	}
	h.epoch++
	if now, ok := h.Key(nil, h.mem, f); !ok || now != before {
		t.Errorf("what has not changed has another key: %+v, %+v", now, before)
	}
}
