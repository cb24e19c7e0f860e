package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"sfsample/output"
	"sfsample/sampler"
	"sfsample/stuck"
)

// dumpVersion is that of the schema in docs/dump-json.md: the first number changes when
// a field changes its meaning or goes, the second when one comes.
const dumpVersion = "1.1"

// The types below are the schema: see docs/dump-json.md.
type (
	jsonDump struct {
		Schema  string       `json:"schema"`
		Version string       `json:"version"`
		Time    time.Time    `json:"time"`
		Apart   int64        `json:"looks_apart_ns"`
		Summary []string     `json:"summary"`
		Cycles  []jsonCycle  `json:"cycles"`
		Stories []jsonStory  `json:"stories"`
		Missing []string     `json:"missing"`
		Threads []jsonThread `json:"threads"`
		Go      []jsonGo     `json:"go,omitempty"` // always there: see writeJSON
	}
	jsonCycle struct {
		Deadlock bool     `json:"deadlock"`
		TIDs     []int    `json:"tids"`
		Behind   []int    `json:"behind_tids"`
		Proof    []string `json:"proof"`
	}
	jsonStory struct {
		Text   string `json:"text"`
		What   string `json:"what"`
		TIDs   []int  `json:"tids"`
		Behind int    `json:"behind"`
		Chain  []int  `json:"chain_tids"`
		End    string `json:"end"`
	}
	// jsonThread is one object, with the fields of all its parts.
	jsonThread struct {
		Task    jsonTask
		Between jsonBetween
		Call    jsonCall
		Stack   jsonStack
	}
	jsonTask struct {
		PID      int    `json:"pid"`
		TID      int    `json:"tid"`
		InnerTID int    `json:"inner_tid"`
		Process  string `json:"process"`
		Name     string `json:"name"`
		State    string `json:"state"`
		Outside  bool   `json:"outside"`
	}
	jsonBetween struct {
		Motion string `json:"motion"`
		Idle   int64  `json:"idle_ns,omitempty"`
		Seen   int64  `json:"idle_at_least_ns,omitempty"`
		CPU    int64  `json:"cpu_ns"`
		Runs   uint64 `json:"runs"`
	}
	jsonCall struct {
		Name string    `json:"call,omitempty"`
		Args []string  `json:"args,omitempty"`
		Wait *jsonWait `json:"wait,omitempty"`
	}
	jsonStack struct {
		Taken  string      `json:"taken,omitempty"`
		Frames []jsonFrame `json:"frames"`
		End    string      `json:"end,omitempty"`
	}
	jsonWait struct {
		Kind     string         `json:"kind"`
		Text     string         `json:"text"`
		What     string         `json:"what"`
		Lock     string         `json:"lock,omitempty"`
		Function string         `json:"function,omitempty"`
		On       []jsonReleaser `json:"on"`
		Complete bool           `json:"on_complete"`
		Unknown  string         `json:"unknown,omitempty"`
		Lost     string         `json:"lost,omitempty"`
		Timed    bool           `json:"timed"`
		Left     *int64         `json:"left_ns,omitempty"`
		FDs      []jsonFD       `json:"fds,omitempty"`
		MoreFDs  int            `json:"more_fds,omitempty"`
	}
	jsonReleaser struct {
		PID  int    `json:"pid"`
		TID  int    `json:"tid,omitempty"`
		Name string `json:"name"`
		How  string `json:"how"`
		Gone bool   `json:"gone,omitempty"`
	}
	jsonFD struct {
		FD     int       `json:"fd"`
		Kind   string    `json:"kind"`
		Path   string    `json:"path,omitempty"`
		Inode  uint64    `json:"inode,omitempty"`
		Peer   uint64    `json:"peer_inode,omitempty"`
		Pos    int64     `json:"offset_bytes,omitempty"`
		Local  string    `json:"local,omitempty"`
		Remote string    `json:"remote,omitempty"`
		State  string    `json:"state,omitempty"`
		RecvQ  *uint64   `json:"recv_queue_bytes,omitempty"`
		SendQ  *uint64   `json:"send_queue_bytes,omitempty"`
		Ready  string    `json:"ready,omitempty"`
		Events uint32    `json:"events,omitempty"`
		Note   string    `json:"note,omitempty"`
		Ends   []jsonEnd `json:"ends,omitempty"`
	}
	jsonEnd struct {
		PID  int    `json:"pid"`
		Name string `json:"name"`
		FD   int    `json:"fd"`
	}
	jsonGo struct {
		PID       int           `json:"pid"`
		Process   string        `json:"process"`
		GoVersion string        `json:"go_version,omitempty"`
		Shown     bool          `json:"shown"`
		Running   int           `json:"running"`
		InCall    int           `json:"in_call"`
		LeftOut   int           `json:"left_out"`
		Stacks    []jsonGoStack `json:"stacks,omitempty"` // always there: see writeGoJSON
	}
	jsonGoStack struct {
		Status     string          `json:"status"`
		Reason     string          `json:"reason,omitempty"`
		Runtime    bool            `json:"runtime"`
		Goroutines []jsonGoroutine `json:"goroutines"`
		StartedBy  *jsonFrame      `json:"started_by,omitempty"`
		Frames     []jsonFrame     `json:"frames"`
		End        string          `json:"end,omitempty"`
	}
	jsonGoroutine struct {
		ID        uint64         `json:"id"`
		Parent    uint64         `json:"parent_id,omitempty"`
		Waits     int64          `json:"waits_at_least_ns,omitempty"`
		LockedTID int            `json:"locked_tid,omitempty"`
		Objects   []jsonGoObject `json:"objects,omitempty"`
	}
	jsonGoObject struct {
		Kind string `json:"kind"`
		Addr string `json:"address"`
		Held *int64 `json:"held,omitempty"`
		Room *int64 `json:"room,omitempty"`
	}
	jsonFrame struct {
		Func    string `json:"func"`
		Module  string `json:"module"`
		Offset  string `json:"offset"`
		PC      string `json:"pc,omitempty"`
		File    string `json:"file,omitempty"`
		Line    int    `json:"line,omitempty"`
		Inlined bool   `json:"inlined,omitempty"`
		Kernel  bool   `json:"kernel,omitempty"`
		How     string `json:"how,omitempty"`
	}
)

// writeJSON writes a dump as one line.
func writeJSON(w io.Writer, v *view) error {
	r := v.report
	d := jsonDump{Schema: "sfsample-dump", Version: dumpVersion, Time: v.at, Apart: int64(r.Apart), Summary: v.summary(),
		Cycles: []jsonCycle{}, Stories: []jsonStory{}, Missing: append([]string{}, r.Missing...), Threads: []jsonThread{}}
	for i := range r.Cycles {
		c := &r.Cycles[i]
		d.Cycles = append(d.Cycles, jsonCycle{!c.Timed, tids(c.Threads), tids(c.Behind), c.Proof()})
	}
	for i := range r.Stories {
		s := &r.Stories[i]
		d.Stories = append(d.Stories, jsonStory{s.Text(), s.What, tids(s.Waiters), s.Behind, tids(s.Chain), s.End})
	}
	dumps := make(map[int]*sampler.ThreadDump, len(v.threads))
	for _, t := range v.threads {
		dumps[t.TID] = t
	}
	for _, t := range r.Threads {
		d.Threads = append(d.Threads, threadJSON(t, dumps[t.TID]))
	}
	// The last field is written by parts: there may be a hundred thousand goroutines.
	if err := openJSON(w, &d, "go"); err != nil {
		return err
	}
	for i, p := range v.goroutines {
		if err := v.writeGoJSON(w, p, i == 0); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, "]}\n")
	return err
}

// openJSON writes an object up to the beginning of one more field, a list.
func openJSON(w io.Writer, object any, field string) error {
	b, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s,%q:[", bytes.TrimSuffix(b, []byte("}")), field)
	return err
}

// MarshalJSON implements json.Marshaler.
func (t jsonThread) MarshalJSON() ([]byte, error) {
	object := []byte("{")
	for _, part := range []any{&t.Task, &t.Between, &t.Call, &t.Stack} {
		b, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		if len(object) > 1 && len(b) > len("{}") {
			object = append(object, ',')
		}
		object = append(object, b[1:len(b)-1]...)
	}
	return append(object, '}'), nil
}

// writeGoJSON writes the goroutines of a process, equal stacks once.
func (v *view) writeGoJSON(w io.Writer, p *sampler.GoProcess, first bool) error {
	if !first {
		fmt.Fprint(w, ",")
	}
	c := &p.Counts
	err := openJSON(w, &jsonGo{PID: p.PID, Process: output.Printable(p.Process), GoVersion: output.Printable(p.Version), Shown: p.Err == nil,
		Running: c.Running, InCall: c.InCall, LeftOut: c.Changed + c.Unread + c.Odd + c.Beyond}, "stacks")
	if err != nil {
		return err
	}
	for i, list := range v.goGroups(p, true) {
		if i > 0 {
			fmt.Fprint(w, ",")
		}
		b, err := json.Marshal(v.goStackJSON(p, list))
		if err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	_, err = io.WriteString(w, "]}")
	return err
}

// goStackJSON is goroutines with one stack.
func (v *view) goStackJSON(p *sampler.GoProcess, list []*sampler.Goroutine) *jsonGoStack {
	g := list[0]
	s := &jsonGoStack{Status: g.Status, Reason: output.Printable(g.Reason), Runtime: g.Runtime, Frames: []jsonFrame{}}
	if g.Creator != nil {
		f := frameJSON(g.Creator)
		f.How = ""
		s.StartedBy = &f
	}
	if g.Stack == nil {
		s.End = "too many different stacks"
	} else {
		s.End = output.Printable(g.Stack.End)
		for i := range g.Stack.Frames {
			s.Frames = append(s.Frames, frameJSON(&g.Stack.Frames[i]))
		}
	}
	for _, g := range list {
		s.Goroutines = append(s.Goroutines, v.goroutineJSON(p, g))
	}
	return s
}

func (v *view) goroutineJSON(p *sampler.GoProcess, g *sampler.Goroutine) jsonGoroutine {
	j := jsonGoroutine{ID: g.ID, Parent: g.Parent, Waits: int64(g.Waits), LockedTID: v.goThread(p.PID, g)}
	for _, o := range g.Objects {
		e := jsonGoObject{Kind: o.Kind, Addr: fmt.Sprintf("%#x", o.Addr)}
		if o.Cap >= 0 {
			held, room := o.Len, o.Cap
			e.Held, e.Room = &held, &room
		}
		j.Objects = append(j.Objects, e)
	}
	return j
}

func tids(list []*stuck.Thread) []int {
	ids := []int{}
	for _, t := range list {
		ids = append(ids, t.TID)
	}
	return ids
}

// threadJSON: without a dump for a thread that was not asked for.
func threadJSON(t *stuck.Thread, dump *sampler.ThreadDump) jsonThread {
	b := &t.Between
	j := jsonThread{
		Task: jsonTask{PID: t.PID, TID: t.TID, InnerTID: t.InnerTID, Process: output.Printable(t.Process.Name), Name: output.Printable(t.Name),
			State: printable(string(rune(t.State))), Outside: t.Outside},
		Between: jsonBetween{Motion: string(b.Motion), Idle: int64(b.Idle), Seen: int64(b.IdleAtLeast), CPU: int64(b.CPU), Runs: b.Runs},
		Call:    jsonCall{Name: t.Call.Name}, Stack: jsonStack{Frames: []jsonFrame{}}}
	if t.Call.Name != "" {
		for _, a := range t.Call.Args {
			j.Call.Args = append(j.Call.Args, fmt.Sprintf("%#x", a))
		}
	}
	if t.Wait != nil {
		j.Call.Wait = waitJSON(t.Wait)
	}
	if dump == nil {
		return j
	}
	j.Stack.Taken = dump.Taken
	if dump.Stack == nil {
		return j
	}
	j.Stack.End = output.Printable(dump.Stack.End)
	for i := range dump.Stack.Frames {
		j.Stack.Frames = append(j.Stack.Frames, frameJSON(&dump.Stack.Frames[i]))
	}
	return j
}

func frameJSON(f *output.Frame) jsonFrame {
	j := jsonFrame{Func: output.Printable(f.Func), Module: output.Printable(f.Module), Offset: fmt.Sprintf("%#x", f.Offset),
		File: output.Printable(f.File), Line: f.Line, Inlined: f.Inlined, Kernel: f.Kernel, How: f.How}
	if f.PC != 0 {
		j.PC = fmt.Sprintf("%#x", f.PC)
	}
	return j
}

func waitJSON(w *stuck.Wait) *jsonWait {
	j := &jsonWait{Kind: w.Kind, Text: w.Line(), What: w.What, Function: output.Printable(w.Function), On: []jsonReleaser{}, Complete: w.Whole,
		Unknown: w.Unknown, Lost: w.Lost, Timed: w.Timed, MoreFDs: w.Set.More}
	if w.Lock != 0 {
		j.Lock = fmt.Sprintf("%#x", w.Lock)
	}
	if w.Timed && w.Left >= 0 {
		left := int64(w.Left)
		j.Left = &left
	}
	for _, r := range w.On {
		j.On = append(j.On, jsonReleaser{r.PID, r.TID, output.Printable(r.Name), r.How, r.Gone})
	}
	for i := range w.Set.FDs {
		j.FDs = append(j.FDs, fdJSON(&w.Set.FDs[i]))
	}
	return j
}

func fdJSON(f *stuck.FD) jsonFD {
	j := jsonFD{FD: f.Number, Kind: f.Kind, Path: output.Printable(f.Path), Inode: f.Inode, Peer: f.Peer, Pos: f.Pos, Local: f.Socket.Local,
		Remote: f.Socket.Remote, State: f.Socket.State, Ready: f.Ready, Events: f.Events, Note: f.Note}
	if f.Socket.Queues {
		recv, send := f.Socket.RecvQ, f.Socket.SendQ
		j.RecvQ, j.SendQ = &recv, &send
	}
	for _, e := range f.Ends {
		j.Ends = append(j.Ends, jsonEnd{e.PID, output.Printable(e.Name), e.FD})
	}
	return j
}
