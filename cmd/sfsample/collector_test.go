package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	otlpcommon "go.opentelemetry.io/proto/slim/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"google.golang.org/protobuf/proto"

	"sfsample/internal/testprog"
)

// realCollector is the variable that names an OpenTelemetry Collector, built from bench/collector.
const realCollector = "SFSAMPLE_COLLECTOR"

// collector is an OpenTelemetry Collector that writes what it takes to a file, length and message.
type collector struct {
	t        *testing.T
	dir, bin string
	port     int
	cmd      *exec.Cmd
}

func (c *collector) start() {
	c.t.Helper()
	config := fmt.Sprintf(`
receivers: {otlp: {protocols: {http: {endpoint: 127.0.0.1:%d}}}}
exporters: {file: {path: %s, append: true, format: proto, flush_interval: 10ms}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {profiles: {receivers: [otlp], exporters: [file]}}
`, c.port, c.file())
	name := filepath.Join(c.dir, "config.yaml")
	if err := os.WriteFile(name, []byte(config), 0o644); err != nil {
		c.t.Fatal(err)
	}
	c.cmd = exec.Command(c.bin, "--feature-gates=service.profilesSupport", "--config", "file:"+name)
	c.cmd.Stderr = os.Stderr
	if testing.Verbose() {
		c.cmd.Stderr = os.Stdout
	}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *collector) stop(sig syscall.Signal) {
	_ = c.cmd.Process.Signal(sig) // an error says that it has ended
	_ = c.cmd.Wait()
}

func (c *collector) file() string { return filepath.Join(c.dir, "profiles") }

// read reads what it has written.
func (c *collector) read() (list []*otlp.ProfilesData) {
	c.t.Helper()
	b, err := os.ReadFile(c.file())
	if err != nil {
		c.t.Fatal(err)
	}
	for len(b) >= 4 {
		n := int(binary.BigEndian.Uint32(b))
		if n > len(b)-4 {
			c.t.Fatalf("a message of %d bytes, %d are there", n, len(b)-4)
		}
		d := new(otlp.ProfilesData)
		if err := proto.Unmarshal(b[4:4+n], d); err != nil {
			c.t.Fatal(err)
		}
		list = append(list, d)
		b = b[4+n:]
	}
	return list
}

// attributesOf are those of a resource, by key. The collector may have put texts into the dictionary.
func attributesOf(d *otlp.ProfilesData, list []*otlpcommon.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range list {
		key := a.Key
		if a.KeyStrindex != 0 {
			key = d.Dictionary.StringTable[a.KeyStrindex]
		}
		switch v := a.Value.Value.(type) {
		case *otlpcommon.AnyValue_StringValue:
			m[key] = v.StringValue
		case *otlpcommon.AnyValue_StringValueStrindex:
			m[key] = d.Dictionary.StringTable[v.StringValueStrindex]
		case *otlpcommon.AnyValue_IntValue:
			m[key] = strconv.FormatInt(v.IntValue, 10)
		}
	}
	return m
}

// foldedOf are the lines of the profiles of one kind.
func foldedOf(d *otlp.ProfilesData, kind string) (lines map[string]int64, sum int64) {
	lines = map[string]int64{}
	x := d.Dictionary
	for _, r := range d.ResourceProfiles {
		attributes := attributesOf(d, r.Resource.Attributes)
		for _, p := range r.ScopeProfiles[0].Profiles {
			if x.StringTable[p.SampleType.TypeStrindex] != kind {
				continue
			}
			for _, s := range p.Samples {
				names := []string{attributes["process.title"]}
				for _, i := range slices.Backward(x.StackTable[s.StackIndex].LocationIndices) {
					for _, l := range slices.Backward(x.LocationTable[i].Lines) {
						names = append(names, x.StringTable[x.FunctionTable[l.FunctionIndex].NameStrindex])
					}
				}
				lines[strings.Join(names, ";")] += s.Values[0]
				sum += s.Values[0]
			}
		}
	}
	return lines, sum
}

// TestCollector: a real collector has got what the folded file of each round has, once and in order, though it is killed
// and started again in between; with the attributes of each process.
func TestCollector(t *testing.T) {
	bin := os.Getenv(realCollector)
	if bin == "" {
		t.Skip("no collector is given: " + realCollector + " names one, as bench/collector makes it")
	}
	c := &collector{t: t, dir: t.TempDir(), bin: bin, port: 14318}
	c.start()
	defer func() { c.stop(syscall.SIGKILL) }()
	var pids []string
	paths := map[string]string{} // by process id
	for _, args := range [][]string{
		{"python3", "-c", "while True: sum(range(1000))"}, {"perl", "-e", `while (1) { $x .= "a"; $x = "" if length $x > 999 }`},
		{"xz", "-9", "-c", "/dev/zero"}, {"gzip", "-9", "-c", "/dev/zero"}, {"bash", "-c", "while :; do :; done"},
	} {
		path, err := filepath.EvalSymlinks("/usr/bin/" + args[0])
		if err != nil {
			t.Skip("five programs are not there: ", err)
		}
		cmd := exec.Command(path, args[1:]...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		pids = append(pids, strconv.Itoa(cmd.Process.Pid))
		paths[strconv.Itoa(cmd.Process.Pid)] = path
	}
	out := t.TempDir()
	cmd := tool("-hz", "49", "--every", "1", "-d", "20.5", "-p", strings.Join(pids, ","), "--service", "shop",
		"-o", fmt.Sprintf("otlp=http://127.0.0.1:%d", c.port), "-o", out+"/x-%T.folded")
	run := begin(t, cmd)
	files := func(n int) (names []string) {
		for deadline := time.Now().Add(testprog.Patience); len(names) < n; {
			if names, _ = filepath.Glob(out + "/x-*.folded"); time.Now().After(deadline) {
				t.Fatalf("%d rounds are there", len(names))
			}
			time.Sleep(10 * time.Millisecond)
		}
		return names
	}
	for i, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		files(5 + 7*i)
		time.Sleep(200 * time.Millisecond) // what it has acknowledged is on its disk then
		c.stop(sig)
		files(8 + 7*i)
		c.start()
	}
	o := run.end(t)
	o.want(t, exitDone, "takes profiles again")
	c.stop(syscall.SIGTERM)
	names := files(20)
	got := c.read()
	if len(got) != len(names) {
		t.Fatalf("%d messages, %d files; standard error:\n%s", len(got), len(names), o.stderr)
	}
	samples, ids, last := int64(0), map[string]bool{}, uint64(0)
	for i, d := range got {
		b, err := os.ReadFile(names[i])
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int64{}
		for line := range strings.Lines(string(b)) {
			at := strings.LastIndexByte(line, ' ')
			n, _ := strconv.ParseInt(strings.TrimSpace(line[at:]), 10, 64)
			want[line[:at]] += n
		}
		lines, sum := foldedOf(d, "samples")
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("round %d: -folded +collector:\n%s", i, diff)
		}
		samples += sum
		for _, r := range d.ResourceProfiles {
			a := attributesOf(d, r.Resource.Attributes)
			if a["service.name"] != "shop" || paths[a["process.pid"]] != a["process.executable.path"] || filepath.Base(a["process.executable.path"]) != a["process.executable.name"] || a["host.name"] == "" {
				t.Errorf("round %d: attributes %v", i, a)
			}
			for _, p := range r.ScopeProfiles[0].Profiles {
				if ids[string(p.ProfileId)] {
					t.Errorf("round %d: profile %x is there twice", i, p.ProfileId)
				}
				ids[string(p.ProfileId)] = true
			}
		}
		if at := got[i].ResourceProfiles[0].ScopeProfiles[0].Profiles[0].TimeUnixNano; at <= last {
			t.Errorf("round %d is before the one that came before", i)
		} else {
			last = at
		}
	}
	t.Logf("%d rounds, %d ticks, %d profiles; standard error:\n%s", len(got), samples, len(ids), o.stderr)
}
