package deliver

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func zipped(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return b.Bytes()
}

func message(text string) *Message {
	return &Message{ContentType: "application/x-protobuf", Gzip: true, Body: zipped(text)}
}

// said gathers what a sender says.
type said struct {
	mu    sync.Mutex
	lines []string
}

func (s *said) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *said) want(t *testing.T, parts ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lines) != len(parts) {
		t.Errorf("%d lines, want %d:\n%s", len(s.lines), len(parts), strings.Join(s.lines, "\n"))
		return
	}
	for i, part := range parts {
		if !strings.Contains(s.lines[i], part) {
			t.Errorf("line %q lacks %q", s.lines[i], part)
		}
	}
}

// scripted answers as the words of a script say, one a request, and then takes all. It notes the bodies it took.
type scripted struct {
	mu     sync.Mutex
	script []string
	seen   []string // body of each request
	taken  []string
	at     []time.Time
}

func (s *scripted) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	if req.Header.Get("Content-Encoding") == "gzip" {
		if body, err = unzip(body); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	word := "ok"
	if len(s.script) > 0 {
		word, s.script = s.script[0], s.script[1:]
	}
	s.seen = append(s.seen, string(body))
	s.at = append(s.at, time.Now())
	if word == "ok" || word == "partial" {
		s.taken = append(s.taken, string(body))
	}
	s.mu.Unlock()
	code, text, after, kind := 200, "", "", ""
	switch word {
	case "ok":
	case "partial":
		text = "\x0a\x07\x08\x02\x12\x03bad"
	case "garbage":
		text = "<html>welcome</html>"
	case "plain":
		text, kind = "accepted\n", "text/plain"
	case "cut":
		return nil, io.ErrUnexpectedEOF
	case "refused":
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	case "silence":
		<-req.Context().Done()
		return nil, req.Context().Err()
	case "429 after 90":
		code, after = 429, "90"
	default:
		fmt.Sscan(word, &code)
	}
	h := http.Header{"Content-Type": {kind}}
	if after != "" {
		h.Set("Retry-After", after)
	}
	return &http.Response{StatusCode: code, Status: fmt.Sprint(code, " ", http.StatusText(code)), Header: h, Body: io.NopCloser(strings.NewReader(text)), Request: req}, nil
}

// TestSend: whatever a receiver does, each message is taken once and in order, but for those that it refuses for good; each
// trouble is told once.
func TestSend(t *testing.T) {
	for _, tt := range []struct {
		script string
		taken  string // of the messages a, b, c
		tries  int
		waits  time.Duration // between the first and the second request, at least
		said   []string
	}{
		{"", "a b c", 3, 0, nil},
		{"429|503", "a b c", 5, firstWait / 2, []string{"429 Too Many Requests: kept in", "503 Service Unavailable: kept in", "takes profiles again"}},
		{"503|503|503|504|502", "a b c", 8, firstWait / 2, []string{"503 Service", "504 Gateway", "502 Bad", "again"}},
		{"429 after 90|ok|429", "a b c", 5, 90 * time.Second, []string{"429", "again", "429", "again"}},
		{"garbage", "a b c", 4, firstWait / 2, []string{"it is no receiver of OTLP", "again"}},
		{"plain", "a b c", 4, firstWait / 2, []string{"the answer is text/plain", "again"}},
		{"silence|silence", "a b c", 5, 10 * time.Second, []string{"no answer within 10s", "again"}},
		{"cut|refused", "a b c", 5, firstWait / 2, []string{"unexpected EOF", "again"}},
		{"400", "b c", 3, 0, []string{"400 Bad Request: refused for good"}},
		{"404|404|ok", "c", 3, 0, []string{"404 Not Found: refused for good"}},
		{"ok|500", "a c", 3, 0, []string{"500 Internal Server Error: refused for good"}},
		{"302", "a b c", 4, firstWait / 2, []string{"302 Found: kept in", "again"}},
		{"partial", "a b c", 3, 0, []string{"2 profiles were rejected: bad"}},
	} {
		t.Run(tt.script, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				r, err := NewOTLP("http://receiver", environment())
				if err != nil {
					t.Fatal(err)
				}
				server := &scripted{}
				if tt.script != "" {
					server.script = strings.Split(tt.script, "|")
				}
				r.client.Transport = server
				q, err := OpenQueue(dir, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				for _, text := range []string{"a", "b", "c"} {
					if err := q.Put(message(text)); err != nil {
						t.Fatal(err)
					}
				}
				q.End()
				var lines said
				q.Send(t.Context(), r, lines.say)
				if got := strings.Join(server.taken, " "); got != tt.taken {
					t.Errorf("the receiver took %q, want %q", got, tt.taken)
				}
				if len(server.seen) != tt.tries {
					t.Errorf("%d requests, want %d: %q", len(server.seen), tt.tries, server.seen)
				}
				if d := server.at[1].Sub(server.at[0]); d < tt.waits {
					t.Errorf("the second request came after %v, want %v at least", d, tt.waits)
				}
				lines.want(t, tt.said...)
				c := q.Counts()
				if c.Put != 3 || c.Sent != int64(len(server.taken)) || c.Sent+c.Refused != 3 || c.Waiting != 0 {
					t.Errorf("%+v", c)
				}
				if left := q.Close(true); left != 0 {
					t.Errorf("%d are left", left)
				}
			})
		})
	}
}

// TestBackOff: the time between two attempts grows to its bound and no further.
func TestBackOff(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r, _ := NewOTLP("http://receiver", environment())
		server := &scripted{script: slices.Repeat([]string{"503"}, 20)}
		r.client.Transport = server
		q, err := OpenQueue(dir, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Put(message("a")); err != nil {
			t.Fatal(err)
		}
		go q.Send(t.Context(), r, new(said).say)
		time.Sleep(time.Hour)
		q.End()
		synctest.Wait()
		if len(server.at) != 21 {
			t.Errorf("%d attempts in an hour, want 21", len(server.at))
		}
		wait := firstWait
		for i := 1; i < len(server.at); i++ {
			if d := server.at[i].Sub(server.at[i-1]); d < wait/2 || d > wait {
				t.Errorf("wait %d was %v, want %v to %v", i, d, wait/2, wait)
			}
			wait = min(2*wait, lastWait)
		}
		q.Close(true)
	})
}

// TestHurry: at the end it is tried once more at once, unless the receiver has asked for time.
func TestHurry(t *testing.T) {
	for answer, more := range map[string]int{"503": 1, "429 after 90": 0} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			r, _ := NewOTLP("http://receiver", environment())
			server := &scripted{script: slices.Repeat([]string{answer}, 1000)}
			r.client.Transport = server
			q, err := OpenQueue(dir, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if err := q.Put(message("a")); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			go q.Send(ctx, r, new(said).say)
			time.Sleep(320 * time.Second)
			synctest.Wait()
			before := len(server.at)
			q.End()
			synctest.Wait()
			if n := len(server.at) - before; n != more {
				t.Errorf("%s: %d attempts at the end, want %d", answer, n, more)
			}
			stop()
			synctest.Wait()
			q.Close(true)
		})
	}
}

// sendAll sends what is in a queue to a receiver that takes all.
func sendAll(t *testing.T, q *Queue) (taken []string, lines *said) {
	t.Helper()
	r, err := NewOTLP("http://receiver", environment())
	if err != nil {
		t.Fatal(err)
	}
	server := new(scripted)
	r.client.Transport, lines = server, new(said)
	q.End()
	q.Send(t.Context(), r, lines.say)
	return server.taken, lines
}

// TestKept: what was not sent is sent by whoever opens the folder next, in order; what a crash has left of a message that was
// being put is not; one that is damaged is left out.
func TestKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	q, err := OpenQueue(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenQueue(dir, 1<<20); err == nil || !strings.Contains(err.Error(), "another sfsample uses it") {
		t.Errorf("opened twice: %v", err)
	}
	for i := range 12 {
		if err := q.Put(message(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if left := q.Close(true); left != 12 {
		t.Errorf("%d are left, want 12", left)
	}
	if err := os.WriteFile(q.name(12)+".partial", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(q.name(3))
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(q.name(3), b, 0o600); err != nil {
		t.Fatal(err)
	}
	q, err = OpenQueue(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Put(message("12")); err != nil {
		t.Fatal(err)
	}
	taken, lines := sendAll(t, q)
	if got := strings.Join(taken, " "); got != "0 1 2 4 5 6 7 8 9 10 11 12" {
		t.Errorf("sent %s", got)
	}
	lines.want(t, "it is damaged")
	q.Close(true)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
}

// TestBounded: the oldest messages make room, and the folder holds no more than it may.
func TestBounded(t *testing.T) {
	dir := t.TempDir()
	one := int64(len((&Message{Body: make([]byte, 1000)}).encode()))
	q, err := OpenQueue(dir, 3*one)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		body := make([]byte, 1000)
		body[0] = byte(i)
		if err := q.Put(&Message{Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Put(&Message{Body: make([]byte, 4000)}); err == nil {
		t.Error("a message that is larger than all was kept")
	}
	size := int64(0)
	names, _ := filepath.Glob(dir + "/*" + ending)
	for _, n := range names {
		info, _ := os.Stat(n)
		size += info.Size()
	}
	e, _ := q.first(t.Context())
	m, err := q.read(e)
	if err != nil || m.Body[0] != 7 || size != 3*one || q.Counts().Dropped != 8 {
		t.Errorf("the first of %d bytes is %v, %v; %+v", size, m.Body[:1], err, q.Counts())
	}
	// The one that is under way makes no room.
	if err := q.Put(&Message{Body: make([]byte, 1000)}); err != nil {
		t.Error(err)
	}
	if err := q.settle(e, func(c *Counts) { c.Sent++ }); err != nil {
		t.Error(err)
	}
	if c := q.Counts(); c.Sent != 1 || c.Dropped != 9 || c.Waiting != 2 || q.waiting[0].number != 9 {
		t.Errorf("while a message was under way another one came: %+v, %v", c, q.waiting)
	}
	q.Close(false)
}

// TestCleaned: a folder that somebody has removed is made anew.
func TestCleaned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "q")
	q, err := OpenQueue(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Put(message("a")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := q.Put(message("b")); err != nil {
		t.Fatal(err)
	}
	taken, lines := sendAll(t, q)
	lines.want(t, "no such file or directory: it is left out")
	if got := strings.Join(taken, " "); got != "b" {
		t.Errorf("sent %q", got)
	}
}

// TestFull: a disk that is full costs the message, and leaves nothing half written.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	q, err := OpenQueue(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(q.name(0)+".partial", 0o700); err != nil { // what cannot be written to
		t.Fatal(err)
	}
	if err := q.Put(message("a")); err == nil || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("%v", err)
	}
	if c := q.Counts(); c.Dropped != 1 || c.Waiting != 0 {
		t.Errorf("%+v", c)
	}
	if err := q.Put(message("b")); err != nil {
		t.Error(err)
	}
	q.Close(false)
}

// TestStopped: a receiver that does not answer keeps nobody from ending, and the message is still there.
func TestStopped(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r, _ := NewOTLP("http://receiver", environment())
		r.client.Transport = &scripted{script: []string{"silence"}}
		q, err := OpenQueue(dir, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Put(message("a")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		q.Send(ctx, r, new(said).say)
		if d := time.Since(begun); d != time.Second {
			t.Errorf("it took %v to end", d)
		}
		if left := q.Close(true); left != 1 {
			t.Errorf("%d are left", left)
		}
	})
}

// TestPost: a request over real HTTP and TLS is as OTLP and the environment have it.
func TestPost(t *testing.T) {
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Skip("no loopback network on this machine: ", err)
	} else {
		l.Close()
	}
	var got *http.Request
	var body []byte
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	}))
	defer s.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := NewOTLP("", environment("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL+"/below/", "OTEL_EXPORTER_OTLP_CERTIFICATE", authority,
		"OTEL_EXPORTER_OTLP_HEADERS", "a=x%20y, b=2", "OTEL_EXPORTER_OTLP_PROFILES_HEADERS", "authorization=Bearer%20z"))
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Post(t.Context(), message("text")); v.Err != nil {
		t.Fatal(v.Err)
	}
	if got.URL.Path != "/below/v1development/profiles" || got.Method != "POST" || got.Header.Get("Content-Encoding") != "gzip" ||
		got.Header.Get("Content-Type") != "application/x-protobuf" || got.Header.Get("Authorization") != "Bearer z" || got.Header.Get("a") != "" {
		t.Errorf("%s %s %v", got.Method, got.URL, got.Header)
	}
	if plain, err := unzip(body); err != nil || string(plain) != "text" {
		t.Errorf("body %q, %v", plain, err)
	}
	r, _ = NewOTLP(s.URL, environment("OTEL_EXPORTER_OTLP_CERTIFICATE", authority, "OTEL_EXPORTER_OTLP_COMPRESSION", "none"))
	if v := r.Post(t.Context(), message("text")); v.Err != nil || string(body) != "text" || got.Header.Get("Content-Encoding") != "" || got.URL.Path != "/v1development/profiles" {
		t.Errorf("without compression: %v, %q, %v", v.Err, body, got.Header)
	}
	r, _ = NewOTLP(s.URL+"/as/it/is", environment())
	if v := r.Post(t.Context(), message("text")); v.Kind != "certificate" || !v.Retry || !strings.Contains(v.Remedy, "OTEL_EXPORTER_OTLP_CERTIFICATE") {
		t.Errorf("a certificate of nobody's: %+v", v)
	}
	r, _ = NewOTLP(strings.Replace(s.URL, "https", "http", 1), environment())
	if v := r.Post(t.Context(), message("text")); v.Err == nil {
		t.Error("http to a server of https is taken")
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	r, _ = NewOTLP(strings.Replace(plain.URL, "http", "https", 1), environment())
	if v := r.Post(t.Context(), message("text")); v.Kind != "tls" || !v.Retry {
		t.Errorf("https to a server of http: %+v", v)
	}
	r, _ = NewOTLP("http://no-such-host.invalid", environment())
	if v := r.Post(t.Context(), message("text")); v.Kind != "name" || !v.Retry {
		t.Errorf("a name of nobody's: %+v", v)
	}
}

// TestPyroscope: the query is kept, and the path is that of the API.
func TestPyroscope(t *testing.T) {
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Skip("no loopback network on this machine: ", err)
	} else {
		l.Close()
	}
	var got *http.Request
	code := 200
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r; w.WriteHeader(code) }))
	defer s.Close()
	r, err := NewPyroscope(s.URL+"/pyroscope", environment("PYROSCOPE_TENANT_ID", "team-a", "PYROSCOPE_AUTH_TOKEN", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	m := &Message{Query: "name=a&from=1", ContentType: "multipart/form-data; boundary=x", Body: []byte("x")}
	if v := r.Post(t.Context(), m); v.Err != nil || got.URL.String() != "/pyroscope/ingest?name=a&from=1" || got.Header.Get("Content-Type") != m.ContentType {
		t.Errorf("%v: %s %v", v.Err, got.URL, got.Header)
	}
	if got.Header.Get("X-Scope-OrgID") != "team-a" || got.Header.Get("Authorization") != "Bearer secret" {
		t.Errorf("who sends is told as %v", got.Header)
	}
	user, err := NewPyroscope(s.URL, environment("PYROSCOPE_BASIC_AUTH_USER", "me", "PYROSCOPE_BASIC_AUTH_PASSWORD", "p:w@"))
	if err != nil || user.ID() != strings.Replace(r.ID(), "/pyroscope", "", 1) || user.Post(t.Context(), m).Err != nil {
		t.Errorf("%v, %v", user, err)
	}
	if name, password, _ := got.BasicAuth(); name != "me" || password != "p:w@" || got.Header.Get("X-Scope-OrgID") != "" {
		t.Errorf("who sends is told as %v", got.Header)
	}
	if _, err := NewPyroscope(s.URL, environment("PYROSCOPE_TENANT_ID", "a\nb")); err == nil {
		t.Error("a name of two lines is taken")
	}
	for code = range map[int]bool{500: true, 429: true, 400: false, 422: false} {
		if v := r.Post(t.Context(), m); v.Err == nil || v.Retry != (code != 400 && code != 422) {
			t.Errorf("%d: %+v", code, v)
		}
	}
}

func TestNew(t *testing.T) {
	for _, address := range []string{"localhost:4318", "ftp://x", "http://", "http://%zz", "/path"} {
		if _, err := NewOTLP(address, environment()); err == nil {
			t.Errorf("%q is an address", address)
		}
	}
	for _, pair := range [][2]string{{"COMPRESSION", "zstd"}, {"PROTOCOL", "grpc"}, {"TIMEOUT", "10s"}, {"TIMEOUT", "0"}, {"HEADERS", "novalue"}, {"HEADERS", "a=%zz"},
		{"HEADERS", "a=b%0d%0ac"}, {"CERTIFICATE", "/nonexistent"}, {"CLIENT_CERTIFICATE", "/nonexistent"}} {
		if _, err := NewOTLP("http://x", environment("OTEL_EXPORTER_OTLP_"+pair[0], pair[1])); err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_") {
			t.Errorf("%s=%s: %v", pair[0], pair[1], err)
		}
	}
	for env, want := range map[string]string{"": "http://localhost:4318/v1development/profiles", "OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT": "http://p/q"} {
		if r, err := NewOTLP("", environment(env, "http://p/q")); err != nil || r.String() != want {
			t.Errorf("%s: %v, %v", env, r, err)
		}
	}
}

// TestDiscreet: no secret of an address is told, nor of a header.
func TestDiscreet(t *testing.T) {
	for text, want := range map[string]string{
		"http://h:1/p": "http://h:1/p", "https://me:s3cret@h/p?key=s3cret": "https://…h/p?…", "a?b": "a?b", "https://me:s3/cr?et@h/p": "https://…h/p", "-o otlp=me:s3cret@h": "-o otlp=…h", "x https://s3cret@h: no, http://h?s3cret": "x https://…h: no, http://h?…",
	} {
		if got := Discreet(text); got != want {
			t.Errorf("%q is told as %q, want %q", text, got, want)
		}
	}
	for _, pair := range [][2]string{{"OTEL_EXPORTER_OTLP_HEADERS", "Authorization=s3cret%zz"}, {"OTEL_EXPORTER_OTLP_HEADERS", "Authorization=a,s3cret"}, {"OTEL_EXPORTER_OTLP_HEADERS", "X Scope=s3cret"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "X-A=s3cret%01"}, {"OTEL_EXPORTER_OTLP_ENDPOINT", "https://me:s3cret@h:bad?s3cret"}} {
		if _, err := NewOTLP("", environment(pair[0], pair[1])); err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), pair[0]) {
			t.Errorf("%s=%s: %v", pair[0], pair[1], err)
		}
	}
	if r, err := NewOTLP("https://me:s3cret@h/p?s3cret", environment()); err != nil || strings.Contains(r.String(), "s3cret") || !strings.Contains(r.ID(), "?s3cret") {
		t.Errorf("%v, %v", r, err)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "99999999999": longestAfter, "soon": 0,
		"Thu, 01 Jan 2026 00:00:30 GMT": 30 * time.Second, "Wed, 31 Dec 2025 00:00:00 GMT": 0,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add((&Message{"q", "t", true, []byte("body")}).encode())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err == nil && !bytes.Equal(m.encode(), b) && len(b) > 20 && b[20] < 2 {
			t.Errorf("%+v is not %x", m, b)
		}
	})
}
