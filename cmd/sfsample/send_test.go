package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/pprof/profile"
	otlp "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"google.golang.org/protobuf/proto"
)

// takes is a receiver of both kinds that refuses each message once.
type takes struct {
	mu       sync.Mutex
	refused  map[string]bool
	otlp     []*otlp.ProfilesData
	profiles []*profile.Profile
	queries  []url.Values
	errs     []error
}

func (x *takes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if x.refused == nil {
		x.refused = map[string]bool{}
	}
	if len(x.refused) < 2 && !x.refused[r.URL.Path] {
		x.refused[r.URL.Path] = true
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	if r.URL.Path == "/ingest" {
		err = x.ingest(r)
	} else {
		err = x.export(r)
	}
	if err != nil {
		x.errs = append(x.errs, fmt.Errorf("%s: %w", r.URL, err))
	}
}

func (x *takes) export(r *http.Request) error {
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(z)
	if err != nil {
		return err
	}
	d := new(otlp.ProfilesData)
	if err := proto.Unmarshal(b, d); err != nil {
		return err
	}
	x.otlp = append(x.otlp, d)
	return nil
}

func (x *takes) ingest(r *http.Request) error {
	file, _, err := r.FormFile("profile")
	if err != nil {
		return err
	}
	p, err := profile.Parse(file)
	if err != nil {
		return err
	}
	x.profiles, x.queries = append(x.profiles, p), append(x.queries, r.URL.Query())
	return p.CheckValid()
}

// TestSent: receivers of both kinds have got the ticks of each round's file, and know the process; one that refuses a message
// gets it again.
func TestSent(t *testing.T) {
	needLoopback(t)
	x := new(takes)
	server := httptest.NewServer(x)
	defer server.Close()
	out := t.TempDir()
	p := startTarget(t, "obey")
	cmd := tool("-hz", "199", "--every", "1", "--max-overhead", "100", "-p", fmt.Sprint(p.pid),
		"-o", out+"/x-%T.folded", "-o", "otlp="+server.URL, "-o", "pyroscope="+server.URL)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "OTEL_SERVICE_NAME=a shop", "OTEL_RESOURCE_ATTRIBUTES=host.name=h%2C1")
	run := begin(t, cmd)
	var names []string
	for len(names) < 2 {
		p.worked(t, 2)
		names, _ = filepath.Glob(out + "/*.folded")
	}
	run.interrupt(t)
	o := run.end(t)
	o.want(t, exitDone, "503 Service Unavailable: kept in", "takes profiles again")
	for _, err := range x.errs {
		t.Error(err)
	}
	names, _ = filepath.Glob(out + "/*.folded")
	var sums []int64
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for line := range strings.Lines(string(b)) {
			n, _ := strconv.ParseInt(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 10, 64)
			sum += n
		}
		if len(b) > 0 {
			sums = append(sums, sum)
		}
	}
	if len(x.otlp) != len(sums) || len(x.profiles) != len(sums) {
		t.Fatalf("%d files, %d OTLP messages, %d profiles; standard error:\n%s", len(sums), len(x.otlp), len(x.profiles), o.stderr)
	}
	pid := fmt.Sprint(p.pid)
	for i, want := range sums {
		_, got := foldedOf(x.otlp[i], "samples")
		a := attributesOf(x.otlp[i], x.otlp[i].ResourceProfiles[0].Resource.Attributes)
		if got != want || a["service.name"] != "a shop" || a["host.name"] != "h,1" || a["process.pid"] != pid || a["process.executable.path"] == "" {
			t.Errorf("round %d by OTLP: %d ticks, want %d; %v", i, got, want, a)
		}
		got = 0
		for _, s := range x.profiles[i].Sample {
			got += s.Value[0]
		}
		q := x.queries[i]
		if got != want || q.Has("format") || q.Get("from") == "" || q.Get("until") < q.Get("from") ||
			!regexp.MustCompile(`^a_shop\{host_name=h_1,process_pid=`+pid+`,.*\}$`).MatchString(q.Get("name")) {
			t.Errorf("round %d by Pyroscope's ingest: %d ticks, want %d; %v", i, got, want, q)
		}
	}
}

// TestSentLater: what a receiver that is away has not got is kept in the folder that was given, with a line that says so, and
// the next run sends it.
func TestSentLater(t *testing.T) {
	needLoopback(t)
	spool := t.TempDir()
	x := &takes{refused: map[string]bool{"a": true, "b": true}}
	server := httptest.NewServer(x)
	address := server.URL
	server.Close()
	p := startTarget(t, "obey")
	sample := func() outcome {
		return sfsample(t, "--threads", "all", "-d", "0.3", "--spool", spool, "-o", "otlp="+address, "-p", fmt.Sprint(p.pid))
	}
	sample().want(t, exitDone, "connection refused: kept in "+spool, "1 messages are not delivered yet, and kept (a run with this receiver and --spool "+spool)
	listener, err := net.Listen("tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Skip("the port is another's by now: ", err)
	}
	server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: x}}
	server.Start()
	defer server.Close()
	sample().want(t, exitDone, "1 messages for "+address+"/v1development/profiles are left in "+spool+" from before, and sent first")
	if len(x.otlp) != 2 || len(x.errs) > 0 {
		t.Errorf("%d messages came, want 2; %v", len(x.otlp), x.errs)
	}
}
