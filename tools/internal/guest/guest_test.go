package guest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sfsample/tools/internal/guest/wire"
)

// TestArchive holds an archive against bytes written by hand from the kernel's
// description of the format.
func TestArchive(t *testing.T) {
	src := filepath.Join(t.TempDir(), "five")
	if err := os.WriteFile(src, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	a := newArchive(&buf)
	a.file("d/f", 0o755, src)
	a.link("l", "d/f")
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	zero := strings.Repeat("0", 8)
	head := func(ino, mode, links, size, name string) string {
		return "070701" + ino + mode + zero + zero + links + zero + size + strings.Repeat(zero, 4) + name + zero
	}
	want := head("00000001", "000041ED", "00000001", zero, "00000002") + "d\x00" +
		head("00000002", "000081ED", "00000001", "00000005", "00000004") + "d/f\x00" + "\x00\x00" + "12345" + "\x00\x00\x00" +
		head("00000003", "0000A1FF", "00000001", "00000003", "00000002") + "l\x00" + "d/f" + "\x00" +
		head("00000004", "00008000", "00000001", zero, "0000000B") + "TRAILER!!!\x00" + "\x00\x00\x00"
	if got := buf.String(); got != want {
		t.Errorf("archive:\n%q\nwant:\n%q", got, want)
	}
}

// TestDistribute: each job gets its own output and end, and the machine's end
// in the middle of a job is both an error and that job's end.
func TestDistribute(t *testing.T) {
	frames := func(list ...string) io.Reader {
		var buf bytes.Buffer
		for _, f := range list {
			if err := wire.Write(&buf, f[0], []byte(f[1:])); err != nil {
				t.Fatal(err)
			}
		}
		return &buf
	}
	tests := []struct {
		name   string
		frames io.Reader
		want   string // output and end of each job
		fails  bool
	}{
		{"two jobs", frames("oone", "o+", "x", "otwo", "xexit status 2"), "one+|<nil>;two|exit status 2;", false},
		{"gone", frames("oone", "x", "otw"), "one|<nil>;tw|the guest is gone: EOF;", true},
		{"broken", frames("bno port"), "|the guest cannot go on: no port;", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got strings.Builder
			err := distribute(tt.frames, 2, func(_ int, output io.Reader, ended func() error) error {
				b, err := io.ReadAll(output)
				got.Write(b)
				if e := ended(); e != nil {
					got.WriteString("|" + e.Error() + ";")
				} else {
					got.WriteString("|<nil>;")
				}
				return err
			})
			if got.String() != tt.want || (err != nil) != tt.fails {
				t.Errorf("got %q, error %v; want %q, an error: %v", got.String(), err, tt.want, tt.fails)
			}
		})
	}
	t.Run("handle gives up", func(t *testing.T) {
		giveUp := errors.New("no more")
		err := distribute(frames("oone", "otwo", "x", "x"), 2, func(int, io.Reader, func() error) error { return giveUp })
		if !errors.Is(err, giveUp) {
			t.Errorf("got %v, want %v", err, giveUp)
		}
	})
}

func TestUnknownArch(t *testing.T) {
	m := Machine{Arch: "mips"}
	if _, err := m.Fetch(); err == nil || !strings.Contains(err.Error(), "arm64 or s390x") {
		t.Errorf("Fetch for mips: %v, want an error that names what there is", err)
	}
}
