package runtimes

import (
	"slices"

	"sfsample/unwind"
)

// v8Scripts tells what scripts are alive: while a name is read, the garbage collector may have put other things into the memory that a function had.
type v8Scripts struct {
	heap     *v8Heap
	isolates map[uint64]bool // by what the register for their roots has
	now      uint64          // that of the thread that was met last; 0: not known
	// place is where in an isolate's data the root is that has the list of its scripts: the same in all isolates of a build. 0: it was not found yet, in so many looks; the next
	// is when threads were met that often.
	place                uint64
	looks, meetings, due int
}

const (
	v8RootRegister = 13       // r13, in all code of V8
	v8RootsBefore  = 128      // what it points to lies so far behind the beginning of the isolate's data
	v8RootsBytes   = 16 << 10 // of that
	maxV8Isolates  = 256
	maxV8Scripts   = 1 << 17 // of one isolate
	v8WeakBit      = 2       // weak pointers have one bit more; without a place they are cleared
	v8FindReads    = 1 << 16 // of a look for their place, which are seldom
	// v8Looks is how many looks for that place may be in vain, as the collector moves what they read, before it counts as one that cannot be found.
	v8Looks = 16
)

// meet takes note of the isolate of a thread.
func (v *v8Scripts) meet(owned []unwind.Owned) {
	v.now = 0
	for i := range owned {
		root, ok := owned[i].Set.Reg(v8RootRegister)
		if !ok || root&7 != 0 || root < v8RootsBefore {
			continue
		}
		if len(v.isolates) >= maxV8Isolates {
			clear(v.isolates)
		}
		v.isolates[root], v.now = true, root
		if v.meetings++; v.place == 0 && v.looks < v8Looks && v.meetings >= v.due {
			v.place = v.find(root - v8RootsBefore)
			if v.looks++; v.looks > v8Looks/4 {
				v.due = 2 * v.meetings // each takes thousands of reads
			}
		}
		return
	}
}

// find looks for the root that has the list of scripts, which alone has weak pointers to such, and returns where it is in the isolate's data.
func (v *v8Scripts) find(isolate uint64) uint64 {
	defer func(left int) { v.heap.budget = left }(v.heap.budget)
	v.heap.budget = v8FindReads
	b := v.heap.read(isolate, v8RootsBytes)
	for i := 0; i+8 <= len(b); i += 8 {
		list := v.list(word(b, i), v.heap.types.weakList, 24, 4)
		scripts := 0
		for _, w := range list {
			if w>>3 != 0 && w&3 == 1|v8WeakBit && w > 1<<12 {
				if v.typeOf(w&^v8WeakBit) != v.heap.types.script {
					scripts = 0
					break
				}
				scripts++
			}
		}
		if scripts > 0 {
			return uint64(i)
		}
	}
	return 0
}

// typeOf is the instance type of an object; 0: not known, a string's.
func (v *v8Scripts) typeOf(ptr uint64) uint16 {
	if !tagged(ptr) {
		return 0
	}
	if b := v.heap.read(ptr-1, 8); b != nil && tagged(word(b, 0)) {
		if m := v.heap.read(word(b, 0)-1, 16); m != nil {
			return uint16(word32(m, 12))
		}
	}
	return 0
}

// list is the elements of an array of this type, which begin at an offset, at most so many.
func (v *v8Scripts) list(ptr uint64, want uint16, from uint64, most int) (list []uint64) {
	if v.typeOf(ptr) != want {
		return nil
	}
	// Lists have a capacity before their length.
	b := v.heap.read(ptr-1+from-8, 8)
	if b == nil {
		return nil
	}
	n, ok := smi(word(b, 0))
	if !ok || n <= 0 || n > maxV8Scripts {
		return nil
	}
	n = min(n, most)
	b = v.heap.read(ptr-1+from, 8*n)
	for i := 0; i+8 <= len(b); i += 8 {
		list = append(list, word(b, i))
	}
	return list
}

// alive tells whether the function of a key is alive and where it was: its script is in an isolate's list, and has it. Also if it is in no script, no
// isolate is known, or where those lists are cannot be found.
func (v *v8Scripts) alive(k *Key) bool {
	if k.Lines == 0 || len(v.isolates) == 0 {
		return true
	}
	if v.place == 0 {
		return v.looks >= v8Looks
	}
	isolates := v.isolates
	if v.now != 0 {
		isolates = map[uint64]bool{v.now: true}
	}
	for root := range isolates {
		b := v.heap.read(root-v8RootsBefore+v.place, 8)
		if b == nil {
			continue
		}
		if !slices.Contains(v.list(word(b, 0), v.heap.types.weakList, 24, maxV8Scripts), k.File|v8WeakBit) {
			continue
		}
		if b = v.heap.read(k.File-1+v8ScriptInfos, 8); b == nil {
			return false
		}
		infos := v.list(word(b, 0), v.heap.types.weakArray, 16, maxV8Scripts)
		return uint64(k.First) < uint64(len(infos)) && infos[k.First] == (k.Code+1)|v8WeakBit
	}
	return false
}
