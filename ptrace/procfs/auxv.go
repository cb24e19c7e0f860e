package procfs

import "encoding/binary"

// Types of auxiliary vector entries (include/uapi/linux/auxvec.h).
const (
	AuxNull        = 0
	AuxPhdr        = 3  // address of the program headers of the executable
	AuxPhent       = 4  // size of one of them
	AuxPhnum       = 5  // their number
	AuxPagesz      = 6  // page size in bytes
	AuxBase        = 7  // address at which the ELF interpreter was loaded, or 0
	AuxEntry       = 9  // address of the executable's entry point
	AuxSysinfoEhdr = 33 // address of the vDSO's ELF header
)

// Aux is one entry of the auxiliary vector.
type Aux struct{ Type, Value uint64 }

// maxAux bounds the vector; kernels pass about 25 entries.
const maxAux = 256

// ParseAuxv parses the content of /proc/PID/auxv: pairs of words of wordBytes
// (8, or 4 for a 32-bit process) in the machine's byte order, up to AT_NULL or
// the end.
func ParseAuxv(b []byte, order binary.ByteOrder, wordBytes int) []Aux {
	get := order.Uint64
	if wordBytes == 4 {
		get = func(b []byte) uint64 { return uint64(order.Uint32(b)) }
	} else {
		wordBytes = 8
	}
	var list []Aux
	for ; len(b) >= 2*wordBytes && len(list) < maxAux; b = b[2*wordBytes:] {
		e := Aux{get(b), get(b[wordBytes:])}
		if e.Type == AuxNull {
			break
		}
		list = append(list, e)
	}
	return list
}
