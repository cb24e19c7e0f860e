package module

import (
	"crypto/sha256"
	"sync"
	"sync/atomic"

	"sfsample/internal/late"
	"sfsample/ptrace/procfs"
)

// pageBytes is the unit in which memory is read and kept. It divides the page
// size of every kernel.
const pageBytes = 4 << 10

// DefaultCacheBytes is the bound of a Cache for which no other was chosen.
const DefaultCacheBytes = 8 << 20

// tableBytes bounds what the tables of all objects keep of decoded rows. A walk
// keeps the rows that it meets by itself, so that they are rarely asked twice.
const tableBytes = 16 << 20

// maxIdle bounds how many objects are kept that no process maps any more: the
// next one to start may map them again.
const maxIdle = 64

// Cache holds what was read of objects, for all Spaces of a run. It may be used
// by any number of goroutines.
type Cache struct {
	// Until is how long files of objects are read. It is set before the first use.
	Until *late.Time

	mu      sync.Mutex
	limit   int // bytes of pages
	pages   map[pageKey]*page
	hand    *page // ring of all pages, for the second-chance rule
	objects map[objectKey]*object
	idle    []*object // refs 0, longest idle first
	lastID  uint64

	tables     map[*object]int // bytes of decoded rows of those that have any
	tableTotal int
	tableLimit int
	clock      atomic.Uint64 // counts look-ups, for cached.used
}

type pageKey struct {
	object uint64
	number uint64 // link-time address / pageBytes
}

type page struct {
	key        pageKey
	data       []byte
	used       bool // since the hand last came by
	prev, next *page
}

// objectKey is what makes two mapped objects the same. With a build-id the
// device and inode do not count: containers have copies of the same library.
type objectKey struct {
	owner   uint32
	buildID string
	dev     procfs.Dev
	inode   uint64
	sum     [sha256.Size]byte // of the headers and probes
}

// cached is what a Cache keeps in mind of an object.
type cached struct {
	key     objectKey
	refs    int           // guarded by Cache.mu
	used    atomic.Uint64 // when it was asked last
	counted int           // bytes of tables that the account has; guarded by object.mu
}

// NewCache returns a cache that holds up to limit bytes of pages; 0 stands for
// DefaultCacheBytes.
func NewCache(limit int) *Cache {
	if limit <= 0 {
		limit = DefaultCacheBytes
	}
	return &Cache{
		limit: limit, pages: map[pageKey]*page{}, objects: map[objectKey]*object{},
		tables: map[*object]int{}, tableLimit: tableBytes,
	}
}

// Bytes is about how much memory the cache holds, pages and decoded rows.
func (c *Cache) Bytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pages)*pageBytes + c.tableTotal
}

// account takes note of how much the tables of o hold after a look-up, and
// makes room at the cost of objects that were not asked for longest. o.mu is
// held; those of others are only tried, so that nobody waits in a circle.
func (c *Cache) account(o *object, bytes int) {
	o.cached.used.Store(c.clock.Add(1))
	if bytes == o.cached.counted {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	o.cached.counted = bytes
	c.tableTotal += bytes - c.tables[o]
	c.tables[o] = bytes
	for c.tableTotal > c.tableLimit {
		var victim *object
		for p := range c.tables {
			if p != o && (victim == nil || p.cached.used.Load() < victim.cached.used.Load()) {
				victim = p
			}
		}
		if victim == nil {
			return // o alone; its tables have bounds of their own
		}
		if victim.mu.TryLock() {
			victim.close()
			victim.cached.counted = 0
			victim.mu.Unlock()
			c.drop(victim)
		} else {
			return // asked at this moment; the next look-up tries again
		}
	}
}

// drop takes o out of the account; mu is held.
func (c *Cache) drop(o *object) {
	c.tableTotal -= c.tables[o]
	delete(c.tables, o)
}

// object returns the object for key, made by create if there is none, and
// counts one more use of it. An object without key is nobody else's.
func (c *Cache) object(key objectKey, private bool, create func() *object) *object {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.objects[key]; o != nil && !private {
		if o.cached.refs == 0 {
			c.removeIdle(o)
		}
		o.cached.refs++
		return o
	}
	o := create()
	c.lastID++
	o.mem.id, o.mem.cache, o.mem.private = c.lastID, c, private
	o.cached.refs, o.cached.key = 1, key
	if !private {
		c.objects[key] = o
	}
	return o
}

// release takes back one use of o.
func (c *Cache) release(o *object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.cached.refs--; o.cached.refs > 0 {
		return
	}
	if o.mem.private {
		c.drop(o)
		return
	}
	// An inode may come back as another file once nobody maps it.
	if o.cached.key.buildID == "" {
		delete(c.objects, o.cached.key)
		c.drop(o)
		return
	}
	if len(c.idle) >= maxIdle {
		delete(c.objects, c.idle[0].cached.key)
		c.drop(c.idle[0])
		c.idle = append(c.idle[:0], c.idle[1:]...)
	}
	c.idle = append(c.idle, o)
}

func (c *Cache) removeIdle(o *object) {
	for i, p := range c.idle {
		if p == o {
			c.idle = append(c.idle[:i], c.idle[i+1:]...)
			return
		}
	}
}

// get copies a part of a page to b, if the cache has the page.
func (c *Cache) get(key pageKey, b []byte, off int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pages[key]
	if p == nil {
		return false
	}
	p.used = true
	copy(b, p.data[off:])
	return true
}

// put keeps a page, in place of one that was not used lately if there is no
// room.
func (c *Cache) put(key pageKey, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pages[key]; p != nil {
		return // another goroutine was faster
	}
	if (len(c.pages)+1)*pageBytes <= c.limit || c.hand == nil {
		p := &page{key: key, data: data}
		c.pages[key] = p
		c.link(p)
		return
	}
	for c.hand.used {
		c.hand.used = false
		c.hand = c.hand.next
	}
	p := c.hand
	delete(c.pages, p.key)
	p.key, p.data = key, data
	c.pages[key] = p
	c.hand = p.next
}

// link puts p behind the hand, where it comes last.
func (c *Cache) link(p *page) {
	if c.hand == nil {
		p.prev, p.next = p, p
		c.hand = p
		return
	}
	p.prev, p.next = c.hand.prev, c.hand
	p.prev.next, p.next.prev = p, p
}
