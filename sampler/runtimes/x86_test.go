package runtimes

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// code is bytes in hexadecimal, with blanks between them.
func code(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDecodeX86: each line is one instruction, as objdump of binutils 2.40 divides the code of HotSpot and of glibc.
func TestDecodeX86(t *testing.T) {
	for _, line := range strings.Split(`48 81 ec 90 00 00 00
89 84 24 00 c0 fe ff
44 89 4c 24 10
c4 c1 79 7e c2
4f 8d 1c d4
c5 f9 7e c9
c4 e3 79 61 46 10 18
c4 e2 7d 17 c0
c5 fe 6f 04 07
c4 e1 fb 93 cf
c5 f8 77
62 f1 7c 48 10 07
62 f3 75 20 3f c0 00
62 e1 fe 28 6f 6c 0e ff
49 3b a7 40 03 00 00
4c 8d 15 f5 ff ff ff
48 b8 01 02 03 04 05 06 07 08
b8 20 00 00 00
66 b8 20 00
66 81 f9 e8 03
48 c7 44 24 08 00 00 00 00
f6 05 10 00 00 00 01
f6 d0
f7 c1 00 01 00 00
48 f7 d8
48 69 c0 10 27 00 00
6b c0 0c
66 0f 1f 84 00 00 00 00 00
66 66 90
f0 48 0f b1 0a
f3 48 0f b8 c1
66 0f 3a 63 06 18
66 0f 38 17 c0
0f ba e0 05
66 0f 70 c0 4e
e9 cd 00 00 00
0f 84 8b 00 00 00
75 e2
ff 24 c5 00 10 40 00
ff 14 25 00 10 40 00
41 ff d2
67 8d 51 ff
65 48 8b 04 25 28 00 00 00
c2 08 00
c3
0f 0b
f3 a4`, "\n") {
		b := code(t, line)
		if x := decodeX86(append(bytes.Clone(b), bytes.Repeat([]byte{0x90}, 16)...)); x.size != len(b) {
			t.Errorf("%s: %d bytes", line, x.size)
		}
		for n := range b {
			if x := decodeX86(b[:n]); x.size > n {
				t.Errorf("%s cut after %d: %d bytes", line, n, x.size)
			}
		}
	}
}

// TestDepths: how deep the stack is at instructions of a method with a frame of 0x30 bytes below its return address, by what each
// does to the stack pointer.
func TestDepths(t *testing.T) {
	const frame = 0x30
	type want struct {
		bytes uint64
		saved bool
		known bool
	}
	none, whole, more := want{0, false, true}, want{frame, true, true}, want{frame + 8, true, true}
	pushed, unknown := want{8, true, true}, want{}
	for _, tt := range []struct {
		name string
		code []string
		want []want // at each
	}{
		{"a register on the stack meanwhile", []string{
			"3b 46 08", "0f 85 00 10 00 00", // is it of this class?
			"89 84 24 00 c0 fe ff", "55", "48 83 ec 28", // mov [rsp-N],eax; push rbp; sub rsp
			"51", "85 d2", "74 04", "2b c1", "75 05", // push rcx; test; je pop rax; sub; jne pop rcx
			"58", "eb 03", // pop rax; jmp behind the other pop
			"eb 00", "59", // never run; pop rcx
			"48 83 c4 28", "5d", // add rsp; pop rbp
			"49 3b a7 40 03 00 00", "0f 87 01 00 00 00", "c3", // cmp rsp,[r15+N]; ja
			"4c 8d 15 f5 ff ff ff", "4d 89 97 58 03 00 00", "e9 00 10 00 00", // the slow path of that
			"e8 00 00 00 00", "48 83 2c 24 05", "e9 00 10 00 00"}, // call to what follows, to learn where it is; entered from outside
			[]want{none, none, none, none, pushed, whole, more, more, more, more, more, whole, unknown, more, whole, pushed, none, none, none, none, none, none, whole, more, more}},
		{"a small frame", []string{"48 81 ec 30 00 00 00", "48 89 6c 24 28", "8b 06", "48 83 c4 28", "5d", "c3"},
			[]want{none, {frame, false, true}, whole, whole, pushed, none}},
		{"closed, of a small frame", []string{"e9 00 10 00 00 00 00", "48 89 6c 24 28", "8b 06"}, []want{none, {frame, false, true}, whole}},
		{"closed", []string{"e9 00 10 00 00 fe ff", "55", "48 83 ec 28", "8b 06", "90 90 90 90 90"}, []want{none, none, pushed, whole, whole}},
		{"aligned", []string{"55", "48 89 e5", "48 83 ec 28", "49 89 e4", "48 83 e4 f0", "ff d0", "4c 89 e4", "8b 06", "c9", "c3"},
			[]want{none, pushed, pushed, whole, whole, unknown, unknown, whole, whole, none}},
		{"no two depths at one place", []string{"55", "48 83 ec 28", "74 01", "50", "8b 06", "c3"}, []want{none, pushed, whole, whole, unknown, unknown}},
		{"entered in a loop", []string{"55", "48 83 ec 28", "eb fe", "89 84 24 00 c0 fe ff", "55", "48 83 ec 28", "8b 06"}, []want{none, pushed, whole, none, none, pushed, whole}},
		{"on the way to the interpreter", []string{"55", "48 83 ec 28", "c3", "48 bb 01 02 03 04 05 06 07 08", "e9 00 10 00 00"}, []want{none, pushed, whole, more, more}},
		{"no instruction", []string{"55", "48 83 ec 28", "06", "8b 06"}, []want{none, pushed, whole, unknown}},
	} {
		var b []byte
		var at []uint64
		entry := 0
		for _, s := range tt.code {
			if at = append(at, uint64(len(b))); strings.HasPrefix(s, "89 84 24") && entry == 0 && len(b) < 10 {
				entry = len(b)
			}
			b = append(b, code(t, s)...)
		}
		d := newDepths(b, entry, frame, 0)
		for i, off := range at {
			x := d.at(off)
			if got := (want{x.bytes, x.saved, x.known}); got != tt.want[i] && (x.known || tt.want[i].known) {
				t.Errorf("%s, at %s: %+v, want %+v", tt.name, tt.code[i], got, tt.want[i])
			}
		}
	}
}

// TestStubDepths: the same of code of many pieces. What lies behind the end of one belongs to it if it jumps there.
func TestStubDepths(t *testing.T) {
	const none, pushed, more, conflicts, unled, inRDX, inRCX, byFP = "0", "8 saved", "136 saved", "?", "", "rdx", "rcx", "by rbp"
	call, raised, left := []depth{{}}, []depth{{popped: regRDX}}, []depth{{}, {bytes: 136, saved: true, linked: true}}
	for _, tt := range []struct {
		name   string
		starts []depth // what may hold at the first instruction
		code   []string
		want   []string // at each
	}{
		{"pieces", nil, []string{"50", "c3", // one without a frame pointer
			"55", "48 8b ec", "74 03", "c9", "c3", "90", // push rbp; mov rbp,rsp; je behind the nop; leave; ret; nop
			"48 81 ec 80 00 00 00", "48 89 44 24 78", "48 81 c4 80 00 00 00", "eb e8", // sub rsp; mov [rsp+N],rax; add rsp; jmp leave
			"06 00 00 00", "00 ff", // data
			"55", "48 8b ec", "48 83 e4 f0", "ff d0", "c9", "c3"}, // and rsp,-16; call rax
			[]string{unled, unled, none, pushed, pushed, pushed, none, unled, pushed, more, more, pushed, unled, unled, none, pushed, pushed, byFP, byFP, none}},
		{"an exception leaves a method (generate_unwind_exception, cpu/x86/c1_Runtime1_x86.cpp)", call, []string{"4c 8b f0", "48 8b 14 24", // mov r14,rax; mov rdx,[rsp]
			"f7 c4 0f 00 00 00", "0f 84 12 00 00 00", "48 83 ec 08", "e8 ee b0 df 11", "48 83 c4 08", "e9 05 00 00 00", "e8 e0 b0 df 11", // aligned: call; else with 8 bytes between
			"48 8b d8", "49 8b c6", "5a", "ff e3", "90"}, // mov rbx,rax; mov rax,r14; pop rdx; jmp rbx
			[]string{none, none, none, none, none, "8", "8", none, none, none, none, none, inRDX, unled}},
		{"compiled code calls the runtime (rethrow_stub of OpenJDK 17)", call, []string{"48 81 ec 18 00 00 00", "48 89 6c 24 10", "48 ff 74 24 18", "48 8f 04 24", // sub rsp; mov [rsp+16],rbp; push [rsp+24]; pop [rsp]
			"41 ff d2", "75 09", "48 83 c4 10", "5d", "5a", "41 ff e2", // call r10; jne; add rsp,16; pop rbp; pop rdx; jmp r10
			"33 db", "48 83 c4 10", "5d", "41 ff e2", "f4"},
			[]string{none, "24", "24 saved", "32 saved", "24 saved", "24 saved", "24 saved", pushed, none, inRDX, "24 saved", "24 saved", pushed, none, unled}},
		{"an exception comes to a method (ExceptionBlob of OpenJDK 17)", raised, []string{"52", "48 83 ec 08", "48 89 2c 24", "48 83 e4 f0", "e8 12 06 34 16", // push rdx; sub rsp; mov [rsp],rbp; and rsp,-16; call
			"48 8b 2c 24", "48 83 c4 08", "5a", "4c 8b c0", "49 8b 97 d8 03 00 00", "41 ff e0"}, // mov rbp,[rsp]; add rsp,8; pop rdx; mov r8,rax; mov rdx,[r15+N]; jmp r8
			[]string{inRDX, none, "8", pushed, pushed, pushed, pushed, none, inRDX, inRDX, inRDX}},
		{"aligned by another", call, []string{"48 83 ec 08", "48 83 e4 f0", "52", "90"}, []string{none, "8", conflicts, conflicts}}, // and rsp,-16; push rdx
		{"not aligned", raised, []string{"52", "48 83 e4 f0", "90"}, []string{inRDX, none, conflicts}},
		{"popped, and more", raised, []string{"51", "90"}, []string{inRDX, conflicts}},                                                                 // push rcx
		{"a poll (SafepointBlob of OpenJDK 17)", nil, []string{"53", "55", "48 8b ec", "9c", "c9"}, []string{unled, none, pushed, pushed, "16 saved"}}, // push rbx; push rbp; mov rbp,rsp; pushf
		{"jumped to with the frame of another (forward_exception of OpenJDK 17)", left, []string{"49 8b 47 08", "48 8b 55 08", "48 89 55 08", "e8 df 09 b5 15", "74 0a", // mov rax,[r15+8]; mov rdx,[rbp+8]; mov [rbp+8],rdx; call; je
			"48 83 e4 f0", "e8 36 dd 16 16", "f4", // and rsp,-16; call; hlt
			"48 81 c4 80 00 00 00", "c9", "c3"}, // add rsp; leave; ret
			[]string{more, more, more, more, more, more, byFP, byFP, more, pushed, none}},
		{"neither a call nor that", left, []string{"48 81 c4 00 04 00 00", "90"}, []string{unled, unled}},
		{"the caller's address is another (handle_exception_from_callee of OpenJDK 17)", call, []string{"55", "48 8b ec", "48 83 e4 f0", "e8 0c 34 b5 15", "48 89 45 08", "c9", "59", "ff e1", "c9", "c3"}, // and rsp,-16; call; mov [rbp+8],rax; leave; pop rcx; jmp rcx
			[]string{none, pushed, pushed, byFP, byFP, conflicts, conflicts, conflicts, unled, unled}},
		{"its caller's address in a register", call, []string{"55", "48 8b ec", "c9", "59", "ff e1"}, []string{none, pushed, pushed, none, inRCX}},
		{"of two pieces the second has set the frame pointer", nil, []string{"55", "48 8b ec", "48 83 ec 08", "90", "48 83 e4 f0", "90", "c3", // push rbp; mov rbp,rsp; sub rsp,8; nop; and rsp,-16
			"55", "48 8b ec", "48 83 ec 08", "48 8b 6f 30", "eb eb"}, // mov rbp,[rdi+48]; jmp nop
			[]string{none, pushed, pushed, "16 saved", "16 saved", conflicts, conflicts, none, pushed, pushed, "16 saved", "16 saved"}},
		{"drops its return address (access_field_patching of OpenJDK 17)", call, []string{"55", "48 8b ec", "c9", "48 83 c4 08", "e9 00 10 00 00"}, []string{none, pushed, pushed, none, conflicts}},
		{"frames are taken down and made (UncommonTrapBlob of OpenJDK 17)", call, []string{"48 83 ec 08", "48 89 2c 24", "e8 ff ee c8 15", "48 83 c4 08", "48 03 e1", "48 8b 6f 30", "48 2b e3", // sub rsp,8; mov [rsp],rbp; call; add rsp,8; add rsp,rcx; mov rbp,[rdi+48]; sub rsp,rbx
			"48 ff 31", "55", "48 8b ec", "48 2b e3", "4c 89 45 f8", "ff ca", "75 ec", // push [rcx]; push rbp; mov rbp,rsp; sub rsp,rbx; mov [rbp-8],r8; dec edx; jne to the first sub
			"48 ff 31", "55", "48 8b ec", "48 83 ec 00", "c9", "c3"},
			[]string{none, "8", pushed, pushed, none, conflicts, conflicts, conflicts, conflicts, conflicts, conflicts, conflicts, conflicts, conflicts, conflicts, none, pushed, pushed, pushed, none}},
		{"another takes the place of the frame pointer", call, []string{"55", "48 8b ec", "48 83 e4 f0", "48 8b 6f 30", "c9", "90"}, []string{none, pushed, pushed, byFP, conflicts, conflicts}},
		{"one depth, of a frame whose pointer one way has set", call, []string{"55", "48 8b ec", "74 05", "48 8b 6c 24 50", "48 83 e4 f0", "90"}, []string{none, pushed, pushed, pushed, pushed, conflicts}}, // je over mov rbp,[rsp+80]
		{"two depths of one frame", call, []string{"55", "48 8b ec", "74 01", "50", "8b 06", "c9", "c3"}, []string{none, pushed, pushed, pushed, byFP, byFP, none}},
		{"its stack pointer is read back (DeoptimizationBlob of OpenJDK 17)", call, []string{"55", "48 8b ec", "49 8b a7 90 02 00 00", "90", "c9", "c3"}, []string{none, pushed, pushed, byFP, byFP, none}},
		{"data first", call, []string{"48 83 ec 08", "eb 02", "90 90", // leads into the piece
			"55", "48 8b ec", "c9", "c3"},
			[]string{conflicts, conflicts, unled, none, pushed, pushed, none}},
	} {
		var b []byte
		var at []uint64
		for _, s := range tt.code {
			at = append(at, uint64(len(b)))
			b = append(b, code(t, s)...)
		}
		d := newStubDepths(b, tt.starts...)
		for i, off := range at {
			x, got := d.at(off), unled
			switch {
			case x.popped != 0:
				got = map[uint8]string{regRDX: inRDX, regRCX: inRCX}[x.popped]
			case x.known:
				got = fmt.Sprint(x.bytes)
				if x.saved {
					got += " saved"
				}
			case x.linked:
				got = byFP
			case x.led:
				got = conflicts
			}
			if got != tt.want[i] {
				t.Errorf("%s, at %s: %q, want %q", tt.name, tt.code[i], got, tt.want[i])
			}
		}
	}
}

// TestHotSpotBlob: two places in the interpreter are in one and the same piece of code, whatever lies where a method has its fields.
func TestHotSpotBlob(t *testing.T) {
	littleEndian(t)
	mem := make([]byte, 0x20000)
	for i := 1; i < 0x200; i++ {
		mem[0x5000+i] = 1 // each segment leads to the one before
	}
	copy(mem[0x6000:], "Interpreter\x00")
	block := mem[0x10000:]
	block[8] = 1
	for i := 16; i < 16+352; i++ {
		block[i] = 0x41
	}
	put := func(at, bytes int, v uint64) {
		for i := range bytes {
			block[16+at+i] = byte(v >> (8 * i))
		}
	}
	put(12, 4, 0x8000)
	put(0x1c, 4, 0xffffffff) // it has no frame (RuntimeStub of C1's exceptions has -1)
	put(0x20, 8, 0x10400)
	put(0x28, 8, 0x14000)
	put(0x60, 8, 0x6000)
	h := &hotspot{mem: bytes.NewReader(mem), lay: hotspotLayouts(false), heaps: []codeHeap{{low: 0x10000, high: 0x20000, segmap: 0x5000, log2: 7}}, blobs: map[uint64]*blob{}, byPC: map[uint64]*blob{}, names: map[uint64]string{}}
	one, other := h.find(0x10500), h.find(0x13000)
	if one == nil || one.kind != interpreterBlob || one != other || !h.Confirm() {
		t.Errorf("%+v, %+v", one, other)
	}
}
