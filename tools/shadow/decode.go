package main

import "encoding/binary"

// decoders tell from an instruction's bytes what it does, and, for calls, how
// long it is.
var decoders = map[string]func(b []byte) (kind, uint64){
	"amd64": decodeX86,
	"arm64": decodeARM64,
	"s390x": decodeS390X,
}

// decodeX86: call rel32, call r/m, ret, syscall, behind any prefixes (Intel SDM
// volume 2, sections 2.1 and 2.2). The length of a call is taken from the
// return address that it pushed, so it is not given here.
func decodeX86(b []byte) (kind, uint64) {
	for len(b) > 2 {
		switch p := b[0]; {
		case p == 0x66, p == 0x67, p == 0xf2, p == 0xf3, p == 0x2e, p == 0x36, p == 0x3e, p == 0x26,
			p == 0x64, p == 0x65, p >= 0x40 && p <= 0x4f:
			b = b[1:]
			continue
		}
		break
	}
	switch {
	case len(b) < 2:
	case b[0] == 0xe8, b[0] == 0xff && b[1]>>3&7 == 2:
		return call, 0
	case b[0] == 0xc3, b[0] == 0xc2:
		return ret, 0
	case b[0] == 0x0f && b[1] == 0x05:
		return syscallInsn, 0
	}
	return other, 0
}

// decodeARM64: bl, blr and ret with their authenticating forms, svc (Arm
// Architecture Reference Manual, chapter C4).
func decodeARM64(b []byte) (kind, uint64) {
	if len(b) < 4 {
		return other, 0
	}
	i := binary.LittleEndian.Uint32(b)
	switch {
	case i&0xfc000000 == 0x94000000, i&0xfffffc1f == 0xd63f0000, i&0xfefff800 == 0xd63f0800:
		return call, 4
	case i&0xfffffc1f == 0xd65f0000, i == 0xd65f0bff, i == 0xd65f0fff:
		return ret, 4
	case i&0xffe0001f == 0xd4000001:
		return syscallInsn, 4
	}
	return other, 4
}

// decodeS390X: brasl, bras, basr and bas with r14; br %r14, on a condition as
// well; svc (z/Architecture Principles of Operation).
func decodeS390X(b []byte) (kind, uint64) {
	if len(b) < 6 {
		return other, 0
	}
	size := uint64([4]int{2, 4, 4, 6}[b[0]>>6]) // by the two leftmost bits
	switch {
	case b[0] == 0xc0 && b[1] == 0xe5:
		return call, 6
	case b[0] == 0xa7 && b[1] == 0xe5, b[0] == 0x4d && b[1]>>4 == 14:
		return call, 4
	case b[0] == 0x0d && b[1]>>4 == 14 && b[1]&15 != 0:
		return call, 2
	case b[0] == 0x07 && b[1]&15 == 14 && b[1]>>4 != 0:
		return ret, 2 // on a condition or always
	case b[0] == 0x0a:
		return syscallInsn, 2
	}
	return other, size
}
