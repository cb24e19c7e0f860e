package symbol

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sfsample/sampler/symbol/rootfs"
)

// program builds a small C program with a static function in dir and returns
// its path, the address of that function, and its build-id.
func program(t testing.TB, dir string) (name string, addr uint64, id string) {
	t.Helper()
	need(t, "gcc", "objcopy", "strip", "nm")
	source := filepath.Join(dir, "a.c")
	if err := os.WriteFile(source, []byte(`
static __attribute__((noinline)) int hidden(int x) { __asm__ volatile(""); return x * 3; }
int main(int argc, char **argv) { return hidden(argc); }
`), 0o600); err != nil {
		t.Fatal(err)
	}
	name = filepath.Join(dir, "a")
	run(t, "gcc", "-O2", "-g", "-Wl,--build-id", "-o", name, source)
	for line := range strings.Lines(run(t, "nm", name)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "hidden" {
			fmt.Sscanf(f[0], "%x", &addr)
		}
	}
	id = openFile(t, name, Options{}).BuildID()
	if addr == 0 || id == "" {
		t.Fatalf("program has hidden at %#x and build-id %q", addr, id)
	}
	return name, addr, id
}

// split strips name and returns its debug file.
func split(t testing.TB, name string) string {
	t.Helper()
	debug := name + ".debug"
	run(t, "objcopy", "--only-keep-debug", name, debug)
	run(t, "strip", name)
	return debug
}

func move(t testing.TB, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// openIn opens the program below root as a target with that root has it.
func openIn(t testing.TB, root, name string, opt Options) *Object {
	t.Helper()
	r, err := rootfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	opt.Roots, opt.Inlines, opt.Lines = []*rootfs.Root{r}, true, true
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	o := Open(contents(t, f), strings.TrimPrefix(name, root), opt)
	t.Cleanup(func() { o.Close(); f.Close(); r.Close() })
	return o
}

func TestDebugFiles(t *testing.T) {
	need(t, "gcc", "objcopy", "strip", "nm")
	const none = ""
	tests := []struct {
		name   string
		place  func(t *testing.T, root, name, debug, id string)
		source string // "" for no name
	}{
		{"no debug file", func(t *testing.T, root, name, debug, id string) {}, none},
		{"by build-id", func(t *testing.T, root, name, debug, id string) {
			move(t, debug, root+buildIDPath(id, ".debug"))
		}, "debug file"},
		{"by build-id of another program", func(t *testing.T, root, name, debug, id string) {
			other, _, _ := program(t, t.TempDir())
			run(t, "objcopy", "--remove-section=.note.gnu.build-id", other)
			move(t, other, root+buildIDPath(id, ".debug"))
		}, none},
		{"damaged", func(t *testing.T, root, name, debug, id string) {
			if err := os.WriteFile(debug, []byte("\x7fELF\x02\x01\x01 and then nothing of use, though long enough for a header"), 0o600); err != nil {
				t.Fatal(err)
			}
			move(t, debug, root+buildIDPath(id, ".debug"))
		}, none},
		{"link beside it", func(t *testing.T, root, name, debug, id string) {
			run(t, "objcopy", "--add-gnu-debuglink="+debug, name)
		}, "debug file"},
		{"link into .debug", func(t *testing.T, root, name, debug, id string) {
			run(t, "objcopy", "--add-gnu-debuglink="+debug, name)
			move(t, debug, filepath.Join(filepath.Dir(name), ".debug", filepath.Base(debug)))
		}, "debug file"},
		{"link into /usr/lib/debug", func(t *testing.T, root, name, debug, id string) {
			run(t, "objcopy", "--add-gnu-debuglink="+debug, name)
			move(t, debug, filepath.Join(root, "usr/lib/debug/bin", filepath.Base(debug)))
		}, "debug file"},
		{"link with the right CRC", func(t *testing.T, root, name, debug, id string) {
			run(t, "objcopy", "--remove-section=.note.gnu.build-id", debug)
			run(t, "objcopy", "--add-gnu-debuglink="+debug, name)
		}, "debug file"},
		{"link with a wrong CRC", func(t *testing.T, root, name, debug, id string) {
			run(t, "objcopy", "--remove-section=.note.gnu.build-id", debug)
			run(t, "objcopy", "--add-gnu-debuglink="+debug, name)
			f, err := os.OpenFile(debug, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(f, "x")
			f.Close()
		}, none},
		{"link that leads out of the root", func(t *testing.T, root, name, debug, id string) {
			run(t, "objcopy", "--add-gnu-debuglink="+debug, name)
			outside := filepath.Join(t.TempDir(), "debug")
			move(t, debug, outside)
			if err := os.Symlink(outside, debug); err != nil {
				t.Fatal(err)
			}
		}, none},
		{"mini debug info", func(t *testing.T, root, name, debug, id string) {
			need(t, "xz")
			run(t, "strip", "--strip-debug", debug)
			run(t, "xz", debug)
			run(t, "objcopy", "--add-section=.gnu_debugdata="+debug+".xz", name)
		}, ".gnu_debugdata"},
		{"mini debug info that is damaged", func(t *testing.T, root, name, debug, id string) {
			need(t, "xz")
			run(t, "xz", debug)
			b, err := os.ReadFile(debug + ".xz")
			if err != nil {
				t.Fatal(err)
			}
			for i := 100; i < len(b); i += 7 {
				b[i] ^= 0x55
			}
			if err := os.WriteFile(debug+".xz", b, 0o600); err != nil {
				t.Fatal(err)
			}
			run(t, "objcopy", "--add-section=.gnu_debugdata="+debug+".xz", name)
		}, none},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "bin")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			name, addr, id := program(t, dir)
			debug := split(t, name)
			// The debug file lies where no search looks until the test places it.
			if tt.source == none && tt.name == "no debug file" {
				os.Remove(debug)
			}
			tt.place(t, root, name, debug, id)
			o := openIn(t, root, name, Options{})
			got, _ := o.Lookup(addr + 1)
			if got.Source != tt.source || (got.Name == "hidden") != (tt.source != none) {
				t.Errorf("Lookup = %+v, want hidden from %q; missing: %s", got, tt.source, o.Missing())
			}
			if (o.Missing() == "") != (tt.source != none) {
				t.Errorf("Missing = %q", o.Missing())
			}
			if tt.source == "debug file" {
				fr := o.Frames(addr + 1)
				if len(fr) != 1 || filepath.Base(fr[0].File) != "a.c" || fr[0].Line != 2 {
					t.Errorf("Frames = %+v, want line 2 of a.c", fr)
				}
			}
		})
	}
}

func TestDebuginfodCacheFolder(t *testing.T) {
	home := t.TempDir()
	tests := []struct {
		name string
		env  map[string]string
		want string
	}{
		{"own variable", map[string]string{"DEBUGINFOD_CACHE_PATH": "/c", "XDG_CACHE_HOME": "/x", "HOME": home}, "/c"},
		{"XDG", map[string]string{"XDG_CACHE_HOME": "/x", "HOME": home}, "/x/debuginfod_client"},
		{"home", map[string]string{"HOME": home}, home + "/.cache/debuginfod_client"},
		{"nothing", nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := DebuginfodCache(func(k string) string { return tt.env[k] }); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	old := filepath.Join(home, ".debuginfod_client_cache")
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := DebuginfodCache(func(k string) string { return map[string]string{"HOME": home}[k] }); got != old {
		t.Errorf("with the older folder: got %q, want %q", got, old)
	}
}

func TestDebuginfod(t *testing.T) {
	root := t.TempDir()
	name, addr, id := program(t, root)
	debug := split(t, name)
	data, err := os.ReadFile(debug)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(debug)

	t.Run("cache", func(t *testing.T) {
		cache := t.TempDir()
		if err := os.Mkdir(filepath.Join(cache, id), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(cache, id, "debuginfo"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		o := openIn(t, root, name, Options{Debuginfod: &Debuginfod{Cache: cache}})
		if got, _ := o.Lookup(addr); got.Name != "hidden" {
			t.Errorf("Lookup = %+v, want hidden; missing: %s", got, o.Missing())
		}
	})
	t.Run("cache says there is none", func(t *testing.T) {
		cache := t.TempDir()
		if err := os.Mkdir(filepath.Join(cache, id), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(cache, id, "debuginfo"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		o := openIn(t, root, name, Options{Debuginfod: &Debuginfod{Cache: cache}})
		if got, ok := o.Lookup(addr); ok {
			t.Errorf("Lookup = %+v, want nothing", got)
		}
	})
	t.Run("server", func(t *testing.T) {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			if r.URL.Path != "/buildid/"+id+"/debuginfo" {
				http.NotFound(w, r)
				return
			}
			w.Write(data)
		}))
		defer server.Close()
		nowhere := httptest.NewServer(http.NotFoundHandler())
		defer nowhere.Close()
		var lines []string
		d := &Debuginfod{Cache: t.TempDir(), URLs: []string{nowhere.URL, server.URL}, Timeout: 10 * time.Second,
			Progress: func(line string) { lines = append(lines, line) }}
		for range 2 { // the second time from the cache
			o := openIn(t, root, name, Options{Debuginfod: d})
			if got, _ := o.Lookup(addr); got.Name != "hidden" {
				t.Errorf("Lookup = %+v, want hidden; missing: %s", got, o.Missing())
			}
		}
		if asked != 1 || len(lines) != 4 {
			t.Errorf("asked %d times with %d lines of progress, want 1 and 4: %q", asked, len(lines), lines)
		}
	})
	t.Run("server that hangs", func(t *testing.T) {
		done := make(chan struct{})
		var asked atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			<-done
		}))
		defer server.Close()
		defer close(done)
		d := &Debuginfod{Cache: t.TempDir(), URLs: []string{server.URL}, Timeout: 50 * time.Millisecond}
		o := openIn(t, root, name, Options{Debuginfod: d})
		if got, ok := o.Lookup(addr); ok || !strings.Contains(o.Missing(), "unusable") {
			t.Errorf("Lookup = %+v, missing %q; want nothing, and the reason", got, o.Missing())
		}
		openIn(t, root, name, Options{Debuginfod: d}).Lookup(addr)
		if n := asked.Load(); n > 1 { // 0: the request was too slow to arrive
			t.Errorf("asked %d times, want once", n)
		}
	})
	t.Run("server that sends nonsense", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, strings.Repeat("nonsense", 100))
		}))
		defer server.Close()
		d := &Debuginfod{Cache: t.TempDir(), URLs: []string{server.URL}, Timeout: 10 * time.Second}
		o := openIn(t, root, name, Options{Debuginfod: d})
		if got, ok := o.Lookup(addr); ok {
			t.Errorf("Lookup = %+v, want nothing", got)
		}
	})
}
