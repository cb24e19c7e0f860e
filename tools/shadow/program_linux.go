package main

import (
	"fmt"

	"sfsample/ptrace"
	"sfsample/regs"
	"sfsample/sampler/module"
	"sfsample/sampler/symbol"
)

// program is what a process has mapped: words, instructions, stacks, and names of places.
type program struct {
	arch    *regs.Arch
	decode  func([]byte) (kind, uint64)
	src     *module.Live
	space   *module.Space
	code    map[uint64]decoded // until the mappings are read again
	symbols map[*module.Module]*symbol.Object
}

type decoded struct {
	kind kind
	len  uint64
}

func openProgram(t *tracee) (*program, error) {
	p := &program{arch: t.user.Arch, code: map[uint64]decoded{}, symbols: map[*module.Module]*symbol.Object{}}
	if p.arch == regs.ARM64 {
		var masks [16]byte
		if n, err := ptrace.ReadRegs(t.pid, notePAC, masks[:]); err == nil && n == len(masks) {
			p.arch = p.arch.WithPAC(p.arch.Word(masks[8:]))
		}
	}
	if p.decode = decoders[p.arch.Name]; p.decode == nil {
		return nil, fmt.Errorf("shadow: no decoder for %s", p.arch.Name)
	}
	p.src = module.NewLive(t.pid, nil)
	p.space = module.NewSpace(p.src, module.NewCache(32<<20), module.Options{})
	return p, p.space.Refresh()
}

// refresh reads the mappings, behind which there may be other code.
func (p *program) refresh() error {
	err := p.space.Refresh()
	if err == nil {
		clear(p.code)
	}
	return err
}

func (p *program) word(addr uint64) (uint64, error) {
	var b [8]byte
	if _, err := p.src.ReadAt(b[:p.arch.WordBytes], int64(addr)); err != nil {
		return 0, err
	}
	return p.arch.Word(b[:]), nil
}

// insn decodes the instruction at pc.
func (p *program) insn(pc uint64) decoded {
	if d, ok := p.code[pc]; ok {
		return d
	}
	var b [16]byte
	n, _ := p.src.ReadAt(b[:], int64(pc))
	k, size := p.decode(b[:n])
	d := decoded{k, size}
	p.code[pc] = d
	return d
}

// behindCall: a call ends right before pc. s390x has calls of three lengths.
func (p *program) behindCall(pc uint64) bool {
	for size := uint64(2); size <= 6; size += 2 {
		if d := p.insn(pc - size); d.kind == call && d.len == size {
			return true
		}
	}
	return false
}

// stackOf names the stack that addr lies on, by its mapping's end.
func (p *program) stackOf(addr uint64) uint64 {
	_, end, ok := p.space.Mapping(addr)
	if !ok {
		// The stack has grown since the mappings were read.
		if p.space.Refresh() == nil {
			_, end, _ = p.space.Mapping(addr)
		}
	}
	return end
}

// place says where pc lies.
func (p *program) place(pc uint64) place {
	m, vaddr, ok := p.space.Module(pc)
	if !ok {
		return place{module: "[anon]", offset: pc, fn: "?"}
	}
	o := p.symbols[m]
	if o == nil {
		if f, err := m.OpenFile(); err == nil {
			o = symbol.Open(f, m.Path, symbol.Options{})
			p.symbols[m] = o
		}
	}
	at := place{module: m.Name(), offset: vaddr, fn: "?"}
	if o != nil {
		if s, ok := o.Lookup(vaddr); ok {
			at.fn = s.Name
		}
	}
	return at
}
