package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"hash/fnv"
	"maps"
	"mime/multipart"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sfsample/deliver"
	"sfsample/output"
	"sfsample/sampler"
	"sfsample/sampler/ledger"
)

// send is a receiver on the command line.
type send struct{ kind, address string }

const (
	sendOTLP      = "otlp"
	sendPyroscope = "pyroscope"
)

// parseSend reads otlp=URL and pyroscope=URL.
func parseSend(s string) (send, bool) {
	kind, address, ok := strings.Cut(s, "=")
	return send{kind, address}, ok && (kind == sendOTLP || kind == sendPyroscope)
}

// receiver is where it leads.
func (s send) receiver() (*deliver.Receiver, error) {
	if s.kind == sendOTLP {
		return deliver.NewOTLP(s.address, os.Getenv)
	}
	return deliver.NewPyroscope(s.address, os.Getenv)
}

// maxSpool bounds the messages that wait for one receiver, on the disk.
const maxSpool = 256 << 20

// lastSend is how long the last messages of a run are sent for, and nextSend those of a run after which another one goes on with them.
const (
	lastSend = 5 * time.Second
	nextSend = time.Second
)

// spool is where messages wait.
type spool struct {
	folder    string
	temporary bool // it goes with its last message
	own       bool // it is of this run alone
}

// sender makes a message of each round and has it sent.
type sender struct {
	send
	to        string // its address, without a password
	opt       output.OTLPOptions
	resources *resources
	queue     *deliver.Queue
	spool     spool
	say       func(string, ...any)
	sent      chan struct{} // closed when nothing is sent any more
	stop      context.CancelFunc

	begun   time.Time
	message bytes.Buffer
	otlp    *output.OTLP
	apart   map[int]*pprofOf // Pyroscope takes a profile for each process
}

// pprofOf is the profile of one process.
type pprofOf struct {
	profile *output.PProf
	message *bytes.Buffer
	comm    string
}

// newSpool makes a folder for a spool that nobody has named.
func newSpool() (string, error) {
	folder, err := os.MkdirTemp("", "sfsample-spool-")
	if err != nil {
		return "", fmt.Errorf("spool: %w (give a folder: --spool DIR)", err)
	}
	return folder, nil
}

// open opens the queues of all receivers and has them sent. They are in a folder named temporary where none was named by the user; if that is
// empty too, in one of this run's own.
func (x *sending) open(opt output.Options, temporary string, say func(string, ...any)) (list []*sender, err error) {
	defer func() {
		if err != nil {
			for _, s := range list {
				s.close(0)
			}
			list = nil
		}
	}()
	ids := map[string]bool{}
	for _, to := range x.receivers {
		receiver, err := to.receiver()
		if err != nil {
			return list, err
		}
		id := to.kind + "=" + receiver.ID()
		if ids[id] {
			return list, fmt.Errorf("-o %s=%s: it is sent to twice (name it once)", to.kind, receiver)
		}
		ids[id] = true
		r, err := newResources(x.service, os.Getenv)
		if err != nil {
			return list, err
		}
		where := spool{x.spool, x.spool == "", x.spool == "" && temporary == ""}
		if where.folder == "" {
			where.folder = temporary
		}
		if where.own {
			if where.folder, err = newSpool(); err != nil {
				return list, err
			}
		}
		hash := fnv.New64a()
		hash.Write([]byte(id))
		queue, err := deliver.OpenQueue(filepath.Join(where.folder, fmt.Sprintf("%s-%016x", to.kind, hash.Sum64())), maxSpool)
		if err != nil {
			if where.own {
				os.RemoveAll(where.folder)
			}
			return list, err
		}
		if n := queue.Counts().Waiting; n > 0 {
			say("%d messages for %s are left in %s from before, and sent first", n, receiver, where.folder)
		}
		ctx, stop := context.WithCancel(context.Background())
		s := &sender{
			send: to, to: receiver.String(), resources: r, queue: queue, spool: where, say: say, stop: stop, sent: make(chan struct{}),
			opt: output.OTLPOptions{Options: opt, Resource: r.of, Version: version(), NoNames: x.noNames},
		}
		go func() {
			defer close(s.sent)
			queue.Send(ctx, receiver, say)
		}()
		s.begin(time.Now())
		list = append(list, s)
	}
	return list, nil
}

func (s *sender) begin(now time.Time) {
	s.begun = now
	s.message = bytes.Buffer{}
	s.resources.next()
	s.otlp = output.NewOTLP(&s.message, s.opt)
	s.apart = map[int]*pprofOf{}
}

// maxApart bounds the processes that have a profile of their own in a round; all others share one.
const maxApart = 1000

// add takes a sample. It never fails.
func (s *sender) add(x *output.Sample) {
	s.resources.meet(x.PID)
	if s.kind == sendOTLP {
		_ = s.otlp.Add(x)
		return
	}
	pid := x.PID
	p := s.apart[pid]
	if p == nil && len(s.apart) >= maxApart {
		pid = 0
		p = s.apart[pid]
	}
	if p == nil {
		p = &pprofOf{message: new(bytes.Buffer), comm: x.Process}
		p.profile = output.NewPProf(p.message, s.opt.Options)
		s.apart[pid] = p
	}
	_ = p.profile.Add(x)
}

// end puts the messages of a round into the queue, if there are some, and begins the next; nil: the run has ended without telling.
func (s *sender) end(x *sampler.Round) (some bool, err error) {
	now := time.Now()
	if x != nil {
		s.begun, now = x.Start, x.End
	}
	switch {
	case s.kind == sendOTLP && !s.otlp.Empty():
		some = true
		s.otlp.Begin, s.otlp.End, s.otlp.Account = s.begun, now, attributes(x)
		rand.Read(s.otlp.ID[:])
		if err = s.otlp.Close(); err == nil {
			err = s.queue.Put(&deliver.Message{ContentType: "application/x-protobuf", Gzip: true, Body: s.message.Bytes()})
		}
	case s.kind == sendPyroscope:
		for _, pid := range slices.Sorted(maps.Keys(s.apart)) {
			some, err = true, cmp.Or(err, s.put(pid, s.apart[pid], now)) // others may fit
		}
	}
	s.begin(now)
	return some, err
}

// put puts the profile of a process into the queue, as Pyroscope's /ingest takes it. Of a form it tells by its content type what is in it;
// with format=pprof it would take the whole form for a profile (ingest_handler.go of Pyroscope 1.6.0).
func (s *sender) put(pid int, p *pprofOf, now time.Time) error {
	p.profile.During(s.begun, now.Sub(s.begun))
	if err := p.profile.Close(); err != nil {
		return err
	}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("profile", "profile.pprof")
	if err == nil {
		_, err = part.Write(p.message.Bytes())
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		return err
	}
	query := url.Values{
		"name": {s.resources.labels(pid, p.comm)}, "spyName": {"sfsample"}, "units": {"samples"}, "aggregationType": {"sum"},
		"from": {strconv.FormatInt(s.begun.Unix(), 10)}, "until": {strconv.FormatInt(now.Unix(), 10)},
		"sampleRate": {strconv.Itoa(int(s.opt.Hz))},
	}
	return s.queue.Put(&deliver.Message{Query: query.Encode(), ContentType: form.FormDataContentType(), Body: body.Bytes()})
}

// close ends sending, after what is left was tried for a while.
func (s *sender) close(grace time.Duration) {
	s.queue.End()
	select {
	case <-s.sent:
	case <-time.After(grace):
	}
	s.stop()
	<-s.sent
	left := s.queue.Close(s.spool.temporary)
	if s.spool.own && left == 0 {
		os.Remove(s.spool.folder)
	}
	if left > 0 {
		s.say("%s=%s: %d messages are not delivered yet, and kept (a run with this receiver and --spool %s sends them)", s.kind, s.to, left, s.spool.folder)
	}
}

// attributes are the account of a round.
func attributes(x *sampler.Round) (list []output.Attr) {
	if x == nil {
		return nil
	}
	add := func(key string, n int64) {
		list = append(list, output.Attr{Key: "sfsample." + key, Number: n})
	}
	add("ticks", x.Ticks)
	add("thread_ticks", x.Expected)
	add("carried", x.Carried)
	add("owed", x.Owed)
	for c, n := range x.Count {
		if n > 0 {
			add("account."+strings.ReplaceAll(strings.ToLower(ledger.Class(c).String()), " ", "_"), n)
		}
	}
	return list
}
