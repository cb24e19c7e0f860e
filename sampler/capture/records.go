package capture

import (
	"time"

	"sfsample/ptrace/procfs"
)

// Record types in a file. Numbers are never reused.
const (
	recRun     = 1
	recMaps    = 2
	recCapture = 3
	recCredit  = 4
	recSpent   = 5
	recName    = 6
	recGone    = 7
	recMemory  = 8
)

// Record is one of *Run, *Maps, *Capture, *Credit, *Spent, *Name, *Gone and *Memory.
type Record interface {
	kind() byte
	encode(*encoder)
	decode(*decoder)
}

func newRecord(kind byte) Record {
	switch kind {
	case recRun:
		return new(Run)
	case recMaps:
		return new(Maps)
	case recCapture:
		return new(Capture)
	case recCredit:
		return new(Credit)
	case recSpent:
		return new(Spent)
	case recName:
		return new(Name)
	case recGone:
		return new(Gone)
	case recMemory:
		return new(Memory)
	}
	return nil
}

func (*Run) kind() byte     { return recRun }
func (*Maps) kind() byte    { return recMaps }
func (*Capture) kind() byte { return recCapture }
func (*Credit) kind() byte  { return recCredit }
func (*Spent) kind() byte   { return recSpent }
func (*Name) kind() byte    { return recName }
func (*Gone) kind() byte    { return recGone }
func (*Memory) kind() byte  { return recMemory }

func (r *Run) encode(e *encoder) {
	e.string(r.Host)
	e.int(r.Start.UnixNano())
	e.float(r.Hz)
	e.string(r.Weight)
	e.string(r.Command)
	e.string(r.Machine)
	e.uint(uint64(len(r.PIDs)))
	for _, pid := range r.PIDs {
		e.int(int64(pid))
	}
}

func (r *Run) decode(d *decoder) {
	r.Host = d.string()
	r.Start = time.Unix(0, d.int())
	r.Hz = d.float()
	r.Weight = d.string()
	if len(d.b) == 0 { // recordings of before end here
		return
	}
	r.Command, r.Machine = d.string(), d.string()
	n := d.uint()
	if n > maxPIDs {
		d.fail()
	}
	for ; n > 0 && d.err == nil; n-- {
		r.PIDs = append(r.PIDs, int(d.int()))
	}
}

func (m *Maps) encode(e *encoder) {
	e.int(int64(m.PID))
	e.uint(uint64(len(m.Regions)))
	for i := range m.Regions {
		r := &m.Regions[i]
		for _, v := range [...]uint64{r.Start, r.End - r.Start, r.Offset, uint64(r.Perms),
			uint64(r.Dev.Major), uint64(r.Dev.Minor), r.Inode} {
			e.uint(v)
		}
		e.bool(r.Deleted)
		e.string(r.Path)
		e.string(r.BuildID)
	}
	e.bytes(m.VDSO)
	n := 0
	for i := range m.Regions {
		if m.Regions[i].dated() {
			n++
		}
	}
	if n == 0 {
		return
	}
	e.uint(uint64(n))
	for i := range m.Regions {
		if r := &m.Regions[i]; r.dated() {
			e.uint(uint64(i))
			e.int(r.Size)
			e.int(r.Modified)
		}
	}
}

// dated tells whether it is known when the file was written.
func (r *Region) dated() bool { return r.Size != 0 || r.Modified != 0 }

func (m *Maps) decode(d *decoder) {
	m.PID = int(d.int())
	n := d.uint()
	if n > maxRegions {
		d.fail()
	}
	for range n {
		if d.err != nil {
			return
		}
		var r Region
		r.Start = d.uint()
		r.End = r.Start + d.uint()
		r.Offset, r.Perms = d.uint(), procfs.Perms(d.uint())
		r.Dev = procfs.Dev{Major: uint32(d.uint()), Minor: uint32(d.uint())}
		r.Inode, r.Deleted = d.uint(), d.bool()
		r.Path, r.BuildID = d.text(), d.text()
		m.Regions = append(m.Regions, r)
	}
	if m.VDSO = d.bytes(); len(m.VDSO) > maxVDSO {
		d.fail()
	}
	if len(d.b) == 0 { // recordings of before end here
		return
	}
	for n := d.uint(); n > 0 && d.err == nil; n-- {
		i := d.uint()
		if i >= uint64(len(m.Regions)) {
			d.fail()
			return
		}
		m.Regions[i].Size, m.Regions[i].Modified = d.int(), d.int()
	}
}

func (c *Capture) encode(e *encoder) {
	e.ids(c.PID, c.TID)
	e.int(c.Tick)
	e.dur(c.At)
	e.uint(uint64(c.Taken))
	e.bool(c.Blocked)
	e.uint(c.Count)
	c.Regs.encode(e)
	e.uint(c.Stack.Addr)
	e.bytes(c.Stack.Bytes)
	e.bytes(c.Kernel)
	e.weight(&c.Weight)
	blocks := c.Beyond.Blocks
	if len(blocks) == 0 {
		blocks = make([]Block, 1)
	}
	e.uint(blocks[0].Addr)
	e.bytes(c.Beyond.Bytes)
	e.uint(c.Doubt.Start)
	e.uint(c.Doubt.End)
	e.uint(uint64(len(blocks) - 1))
	for _, b := range blocks[1:] { // behind the first, which has the rest of the bytes
		e.uint(b.Addr)
		e.uint(uint64(b.Len))
	}
	if len(c.Roots) == 0 {
		return
	}
	e.uint(uint64(len(c.Roots)))
	for _, r := range c.Roots {
		e.uint(r)
	}
}

func (c *Capture) decode(d *decoder) {
	c.PID, c.TID = d.ids()
	c.Tick = d.int()
	c.At = d.dur()
	c.Taken = Taken(d.uint())
	c.Blocked = d.bool()
	c.Count = d.uint()
	c.Regs.decode(d)
	c.Stack.Addr = d.uint()
	c.Stack.Bytes = d.bytes()
	c.Kernel = d.bytes()
	c.Weight = d.weight()
	// Recordings of before end here, or there, or there.
	var first Block
	if len(d.b) > 0 {
		first.Addr, c.Beyond.Bytes = d.uint(), d.bytes()
		first.Len = len(c.Beyond.Bytes)
	}
	if len(d.b) > 0 {
		c.Doubt = Range{d.uint(), d.uint()}
	}
	if first.Len > 0 {
		c.Beyond.Blocks = []Block{first}
	}
	if len(d.b) > 0 {
		c.Beyond.moreBlocks(d)
	}
	if len(d.b) > 0 {
		n := d.uint()
		if n > maxRoots {
			d.fail()
			return
		}
		for range n {
			c.Roots = append(c.Roots, d.uint())
		}
	}
}

// moreBlocks reads the blocks behind the first one.
func (c *Copies) moreBlocks(d *decoder) {
	for range d.uint() {
		b := Block{Addr: d.uint()}
		n := d.uint()
		if d.err != nil || n == 0 || len(c.Blocks) == 0 || n > uint64(c.Blocks[0].Len) {
			d.fail()
			return
		}
		b.Len = int(n)
		c.Blocks[0].Len -= b.Len
		c.Blocks = append(c.Blocks, b)
	}
}

func (r *Registers) encode(e *encoder) {
	e.bytes(r.Note)
	e.bytes(r.FP)
	e.int(r.Call.NR)
	for _, a := range r.Call.Args {
		e.uint(a)
	}
	e.uint(r.Call.SP)
	e.uint(r.Call.PC)
	e.uint(r.PACMask)
}

func (r *Registers) decode(d *decoder) {
	r.Note = d.bytes()
	r.FP = d.bytes()
	r.Call.NR = d.int()
	for i := range r.Call.Args {
		r.Call.Args[i] = d.uint()
	}
	r.Call.SP = d.uint()
	r.Call.PC = d.uint()
	r.PACMask = d.uint()
}

func (c *Credit) encode(e *encoder) {
	e.ids(c.PID, c.TID)
	e.dur(c.At)
	e.weight(&c.Weight)
	e.bool(c.Waited)
}

func (c *Credit) decode(d *decoder) {
	c.PID, c.TID = d.ids()
	c.At = d.dur()
	c.Weight = d.weight()
	if len(d.b) > 0 { // recordings of before end here
		c.Waited = d.bool()
	}
}

func (s *Spent) encode(e *encoder) {
	e.int(int64(s.PID))
	e.weight(&s.Weight)
	e.int(int64(s.TID))
}

func (s *Spent) decode(d *decoder) {
	s.PID = int(d.int())
	s.Weight = d.weight()
	if len(d.b) > 0 { // recordings of before end here
		s.TID = int(d.int())
	}
}

func (n *Name) encode(e *encoder) { e.ids(n.PID, n.TID); e.string(n.Name) }

func (n *Name) decode(d *decoder) { n.PID, n.TID = d.ids(); n.Name = d.text() }

func (g *Gone) encode(e *encoder) { e.int(int64(g.PID)) }

func (g *Gone) decode(d *decoder) { g.PID = int(d.int()) }

func (m *Memory) encode(e *encoder) { e.int(int64(m.PID)); e.uint(m.Addr); e.bytes(m.Bytes) }

func (m *Memory) decode(d *decoder) { m.PID = int(d.int()); m.Addr = d.uint(); m.Bytes = d.bytes() }
