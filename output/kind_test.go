package output

import "testing"

// TestKinds: frames that stand for waits are told from others that are no code.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		f    Frame
		want Kind
	}{
		{Frame{Func: "[futex: mutex held by b]", Waits: true}, KindWaiting},
		{Frame{Func: "[waiting for a CPU]", Waits: true}, KindWaiting},
		{Frame{Func: "[never caught running]"}, KindMarker},
		{Frame{Func: FramesMissing}, KindMarker},
		{Frame{Func: "main", Module: "app", PC: 1}, KindOwn},
		{Frame{Func: "read", Module: "libc.so.6", PC: 1}, KindRuntime},
		{Frame{Func: "deflate", Module: "libz.so.1", PC: 1}, KindLibrary},
		{Frame{Func: "f", Module: "app", PC: 1, Inlined: true}, KindInlined},
	} {
		if got := kindOf(&c.f); got != c.want {
			t.Errorf("%s: %s, want %s", c.f.Func, kindNames[got], kindNames[c.want])
		}
	}
}
