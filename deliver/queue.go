package deliver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Message is what is posted at once.
type Message struct {
	Query       string // added to the receiver's address; may be empty
	ContentType string
	Gzip        bool // Body is gzipped (Content-Encoding)
	Body        []byte
}

// Queue is a folder of messages that wait to be sent.
type Queue struct {
	dir  string
	max  int64 // bytes
	lock *os.File
	news chan struct{} // room for one: something was put, or closed

	mu      sync.Mutex
	waiting []entry // oldest first
	posted  *entry  // the one under way, which makes no room for others
	size    int64
	next    uint64
	ended   chan struct{} // closed by End
	counts  Counts
}

// Counts tells what became of messages.
type Counts struct {
	Put       int64
	Sent      int64 // taken by the receiver
	SentBytes int64
	Refused   int64 // for good
	Rejected  int64 // profiles of messages that were taken without them
	Dropped   int64 // as the folder was full, or they were damaged on the disk
	Retries   int64
	Waiting   int64
}

type entry struct {
	number uint64
	size   int64
}

const ending = ".msg"

func (q *Queue) name(number uint64) string {
	return filepath.Join(q.dir, fmt.Sprintf("%016x%s", number, ending))
}

// OpenQueue opens a folder, which it makes if need be, for messages of at most max bytes in all. What is in it from before
// is sent first. It is an error if another program has it open.
func OpenQueue(dir string, max int64) (*Queue, error) {
	fail := func(err error, remedy string) (*Queue, error) {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, fmt.Errorf("spool %s: %w (%s)", dir, err, remedy)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err, "give a folder where you may write: --spool DIR")
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fail(err, "give a folder where you may write: --spool DIR")
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return fail(errors.New("another sfsample uses it"), "end that one, or give each a folder of its own: --spool DIR")
	}
	q := &Queue{dir: dir, max: max, lock: lock, news: make(chan struct{}, 1), ended: make(chan struct{})}
	names, err := os.ReadDir(dir)
	if err != nil {
		lock.Close()
		return fail(err, "give another folder: --spool DIR")
	}
	for _, n := range names {
		number, err := strconv.ParseUint(strings.TrimSuffix(n.Name(), ending), 16, 64)
		if !strings.HasSuffix(n.Name(), ending) || err != nil {
			if strings.HasSuffix(n.Name(), ".partial") {
				os.Remove(filepath.Join(dir, n.Name()))
			}
			continue
		}
		if info, err := n.Info(); err == nil {
			q.waiting = append(q.waiting, entry{number, info.Size()})
			q.size += info.Size()
		}
	}
	slices.SortFunc(q.waiting, func(a, b entry) int { return strings.Compare(q.name(a.number), q.name(b.number)) })
	if k := len(q.waiting); k > 0 {
		q.next = q.waiting[k-1].number + 1
	}
	return q, nil
}

// Put adds a message. The oldest ones make room for it where there is none. An error: it is not kept.
func (q *Queue) Put(m *Message) error {
	b := m.encode()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.counts.Put++
	if int64(len(b)) > q.max {
		q.counts.Dropped++
		return fmt.Errorf("spool %s: a message of %d bytes is more than all of it may be (try: a shorter --every)", q.dir, len(b))
	}
	for q.size+int64(len(b)) > q.max {
		oldest := slices.IndexFunc(q.waiting, func(e entry) bool { return q.posted == nil || e != *q.posted })
		if oldest < 0 {
			q.counts.Dropped++
			return fmt.Errorf("spool %s: there is no room beside the message that is under way (try: a shorter --every)", q.dir)
		}
		_ = q.remove(q.waiting[oldest]) // what stays on the disk comes again
		q.counts.Dropped++
	}
	name := q.name(q.next)
	partial := name + ".partial"
	err := os.WriteFile(partial, b, 0o600)
	if errors.Is(err, os.ErrNotExist) && os.MkdirAll(q.dir, 0o700) == nil { // somebody has cleaned up
		err = os.WriteFile(partial, b, 0o600)
	}
	if err == nil {
		err = os.Rename(partial, name)
	}
	if err != nil {
		os.Remove(partial)
		q.counts.Dropped++
		return fmt.Errorf("spool: %w (free some space, or give another folder: --spool DIR)", err)
	}
	q.waiting = append(q.waiting, entry{q.next, int64(len(b))})
	q.size += int64(len(b))
	q.next++
	q.tell()
	return nil
}

func (q *Queue) tell() {
	select {
	case q.news <- struct{}{}:
	default:
	}
}

// remove takes a message out; q.mu is held.
func (q *Queue) remove(e entry) error {
	i := slices.Index(q.waiting, e)
	if i < 0 {
		return nil
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.size -= e.size
	if err := os.Remove(q.name(e.number)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Counts tells what became of messages so far.
func (q *Queue) Counts() Counts {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.counts
	c.Waiting = int64(len(q.waiting))
	return c
}

// Close ends the queue when Send has returned. It removes the folder if temporary and empty, and returns how many messages
// are left in it.
func (q *Queue) Close(temporary bool) (left int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if left = len(q.waiting); left == 0 && temporary {
		os.Remove(q.lock.Name())
		os.Remove(q.dir)
	}
	q.lock.Close()
	return left
}

// End says that nothing more is put: Send returns when all is sent, and tries once more at once where it waits to try again, unless the
// receiver has asked for that time. It is called once.
func (q *Queue) End() { close(q.ended) }

// first waits for the oldest message, which is under way then until it is settled. false: there is none, and none comes.
func (q *Queue) first(ctx context.Context) (entry, bool) {
	take := func() (entry, bool) {
		q.mu.Lock()
		defer q.mu.Unlock()
		if len(q.waiting) == 0 {
			return entry{}, false
		}
		e := q.waiting[0]
		q.posted = &e
		return e, true
	}
	for {
		if e, ok := take(); ok {
			return e, ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return entry{}, false
		case <-q.ended:
			return take() // which was put before the end
		case <-q.news:
		}
	}
}

// Back-off between two attempts of the same message (OpenTelemetry Protocol, "Retryable errors": exponential, with jitter).
const (
	firstWait = time.Second
	lastWait  = time.Minute
)

// Send posts messages in order until ctx is done, or all are sent after End. say is told once when a receiver does not take
// them, and when it does again.
func (q *Queue) Send(ctx context.Context, r *Receiver, say func(format string, args ...any)) {
	wait, told, refused := firstWait, "", ""
	ended := q.ended // nil: it is known
	stays := false
	settle := func(e entry, count func(*Counts)) {
		if err := q.settle(e, count); err != nil && !stays {
			stays = true
			say("spool: %v: it is sent again by the next run with this spool (free it of what keeps files from being removed)", err)
		}
	}
	for {
		e, ok := q.first(ctx)
		if !ok {
			return
		}
		select {
		case <-ended:
			ended = nil
		default:
		}
		m, err := q.read(e)
		if err != nil {
			say("spool: %v: it is left out", err)
			settle(e, func(c *Counts) { c.Dropped++ })
			continue
		}
		v := r.Post(ctx, m)
		switch {
		case v.Err == nil:
			if told != "" {
				say("%s takes profiles again, %d wait", r, q.Counts().Waiting-1)
			}
			if v.Note != "" && v.Note != refused {
				say("%s: %s", r, v.Note)
			}
			wait, told, refused = firstWait, "", v.Note
			settle(e, func(c *Counts) { c.Sent++; c.SentBytes += int64(len(m.Body)); c.Rejected += v.Rejected })
			continue
		case ctx.Err() != nil:
			return
		case !v.Retry:
			if v.Kind != refused {
				say("%s: %v: refused for good, left out (%s)", r, v.Err, v.Remedy)
			}
			wait, told, refused = firstWait, "", v.Kind
			settle(e, func(c *Counts) { c.Refused++ })
			continue
		}
		if told != v.Kind {
			say("%s: %v: kept in %s and tried again (%s)", r, v.Err, q.dir, v.Remedy)
			told = v.Kind
		}
		q.count(func(c *Counts) { c.Retries++ })
		pause := max(wait/2+rand.N(wait/2), v.After)
		wait = min(2*wait, lastWait)
		hurry := ended
		if v.After > 0 {
			hurry = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-hurry:
			ended = nil
		case <-time.After(pause):
		}
	}
}

// settle ends a message. An error: it could not be removed from the disk.
func (q *Queue) settle(e entry, count func(*Counts)) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.posted = nil
	count(&q.counts)
	return q.remove(e)
}

func (q *Queue) count(f func(*Counts)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f(&q.counts)
}

// A message on the disk is magic, a checksum of the rest (CRC-32, IEEE), the lengths of query and type, gzip as 0 or 1,
// query, type and body; numbers are of four bytes, little endian.
const (
	magic      = "sfsampl1"
	headBytes  = len(magic) + 4*4
	maxMessage = 1 << 30
)

func (m *Message) encode() []byte {
	rest := binary.LittleEndian.AppendUint32(nil, uint32(len(m.Query)))
	rest = binary.LittleEndian.AppendUint32(rest, uint32(len(m.ContentType)))
	gzip := uint32(0)
	if m.Gzip {
		gzip = 1
	}
	rest = binary.LittleEndian.AppendUint32(rest, gzip)
	rest = append(append(append(rest, m.Query...), m.ContentType...), m.Body...)
	return append(binary.LittleEndian.AppendUint32([]byte(magic), crc32.ChecksumIEEE(rest)), rest...)
}

func decode(b []byte) (*Message, error) {
	if len(b) < headBytes || !bytes.HasPrefix(b, []byte(magic)) {
		return nil, errors.New("it is no message, or cut")
	}
	if crc32.ChecksumIEEE(b[len(magic)+4:]) != binary.LittleEndian.Uint32(b[len(magic):]) {
		return nil, errors.New("it is damaged")
	}
	number := func(i int) uint64 { return uint64(binary.LittleEndian.Uint32(b[len(magic)+4*i:])) }
	query, kind, gzip, rest := number(1), number(2), number(3), b[headBytes:]
	if query+kind > uint64(len(rest)) {
		return nil, errors.New("it is damaged")
	}
	return &Message{string(rest[:query]), string(rest[query : query+kind]), gzip != 0, rest[query+kind:]}, nil
}

// read reads a message.
func (q *Queue) read(e entry) (*Message, error) {
	if e.size > maxMessage {
		return nil, fmt.Errorf("message %s: it is of %d bytes", q.name(e.number), e.size)
	}
	b, err := os.ReadFile(q.name(e.number))
	if err != nil {
		return nil, fmt.Errorf("message: %w", err)
	}
	m, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("message %s: %w", q.name(e.number), err)
	}
	return m, nil
}
