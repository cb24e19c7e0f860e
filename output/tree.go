package output

import "fmt"

// Bounds of what an aggregating writer holds. A node costs about 45 bytes, so
// that a full tree is about 12 MB; a stack that shares its outer frames with
// others, as nearly all do, needs only a few nodes of its own.
const (
	maxNodes     = 1 << 18
	maxKeys      = 1 << 17 // of a table, about 100 bytes each beside their text
	maxTextBytes = 8 << 20 // of a table
	// maxCached is how many frames the stacks may have, in sum, that a writer
	// recognises by their pointer (104 bytes each, shared with the sampler and
	// the other writers). Others are looked up frame by frame.
	maxCached = 1 << 16
)

// table is an index of texts, of which there are maxKeys and maxTextBytes at most.
type table struct {
	index[string]
	bytes int
}

// id returns the number of key, a new one if it has none yet; false if the
// table is full. It allocates only for a new key.
func (t *table) id(key []byte) (uint32, bool) {
	if id, ok := t.ids[string(key)]; ok {
		return id, true
	}
	if t.full() || len(t.keys) >= maxKeys || t.bytes+len(key) > maxTextBytes {
		return 0, false
	}
	return t.add(string(key)), true
}

// add is id for a key of the writer's own, which may exceed the bounds.
func (t *table) add(key string) uint32 {
	had := len(t.keys)
	id := t.index.add(key)
	if len(t.keys) > had {
		t.bytes += len(key)
	}
	return id
}

// index numbers distinct keys in the order of their first appearance, from 0.
type index[K comparable] struct {
	ids   map[K]uint32
	keys  []K
	limit int // of keys; 0: none
}

// id returns the number of k, a new one if it has none yet; 0 and false if the index is full.
func (x *index[K]) id(k K) (uint32, bool) {
	id, ok := x.ids[k]
	if ok || x.full() {
		return id, ok
	}
	return x.add(k), true
}

func (x *index[K]) full() bool { return x.limit > 0 && len(x.keys) >= x.limit }

// add is id for a key that may exceed the limit.
func (x *index[K]) add(k K) uint32 {
	if id, ok := x.ids[k]; ok {
		return id
	}
	if x.ids == nil {
		x.ids = make(map[K]uint32)
	}
	id := uint32(len(x.keys))
	x.ids[k] = id
	x.keys = append(x.keys, k)
	return id
}

// ref numbers keys from 1, as formats do where 0 stands for nothing. It is 0 if the index is full.
func (x *index[K]) ref(k K) uint32 {
	if id, ok := x.id(k); ok {
		return id + 1
	}
	return 0
}

// stackCache remembers stacks by their pointers, with what else K tells apart, and the number of each. When they have
// more than maxCached frames in sum it begins anew.
type stackCache[K comparable] struct {
	ids    map[K]uint32
	frames int
}

func (c *stackCache[K]) keep(k K, s *Stack, id uint32) {
	size := 1
	if s != nil {
		size += len(s.Frames)
	}
	if c.ids == nil {
		c.ids = make(map[K]uint32)
	}
	if c.frames+size > maxCached {
		clear(c.ids)
		c.frames = 0
	}
	c.frames += size
	c.ids[k] = id
}

// overflowName is the number of the frame overflow, in every tree.
const overflowName = 0

// node is one call path: that of its parent, and then one frame more.
type node struct {
	parent uint32
	frame  uint32 // number of the frame, by the tree's user
	self   int64  // weight of the stacks that end here
}

type edge struct{ parent, frame uint32 }

// tree holds call paths, root first, each prefix once. Node 0 is the root and
// stands for no frame.
type tree struct {
	nodes []node
	edges map[edge]uint32
	limit int
}

func newTree(limit int) tree {
	return tree{nodes: make([]node, 1), edges: make(map[edge]uint32), limit: limit}
}

// step returns the node that prolongs parent by frame, if that has a number. It fails, having stepped to the node that
// says so, when there is no room for it.
func (t *tree) step(parent, frame uint32, ok bool) (uint32, bool) {
	if n, known := t.edges[edge{parent, frame}]; ok && known {
		return n, true
	}
	if !ok || len(t.nodes) >= t.limit {
		return t.more(parent), false
	}
	return t.grow(parent, frame), true
}

// more returns the node that says that there was more below parent. It may exceed the limit: there is at most one for
// each other node.
func (t *tree) more(parent uint32) uint32 { return t.grow(parent, overflowName) }

// leaf returns the node of the innermost frame of a stack that ended for want of room at a node of [tree.more], so that what functions weigh by
// themselves stays what it is, as far as there is room: all nodes may exceed the limit by a quarter for it. Beyond that, or if the frame has no number, it is that node.
func (t *tree) leaf(more, frame uint32, ok bool) uint32 {
	if _, known := t.edges[edge{more, frame}]; !ok || !known && len(t.nodes) >= t.limit+t.limit/4 {
		return more
	}
	return t.grow(more, frame)
}

func (t *tree) grow(parent, frame uint32) uint32 {
	e := edge{parent, frame}
	n, ok := t.edges[e]
	if !ok {
		n = uint32(len(t.nodes))
		t.nodes = append(t.nodes, node{parent: parent, frame: frame})
		t.edges[e] = n
	}
	return n
}

// notes tells how many stacks ended in the frame overflow for want of room.
func (t *tree) notes() []string {
	n := 0
	for i := range t.nodes {
		if i > 0 && t.nodes[i].frame == overflowName {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("there was no room for all distinct stacks: at %d places all further calls are one frame, %q, and the innermost below it as far as there is room (try: a shorter -d, or a lower --max-depth)", n, overflow)}
}

// children returns for each node those below it, as ranges of one list:
// those of n are list[first[n]:first[n+1]], in the order of their creation.
func (t *tree) children() (list, first []uint32) {
	first = make([]uint32, len(t.nodes)+1)
	for _, n := range t.nodes[1:] {
		first[n.parent+1]++
	}
	for i := 1; i < len(first); i++ {
		first[i] += first[i-1]
	}
	list = make([]uint32, len(t.nodes)-1)
	next := append([]uint32(nil), first...)
	for i := 1; i < len(t.nodes); i++ {
		p := t.nodes[i].parent
		list[next[p]] = uint32(i)
		next[p]++
	}
	return list, first
}
