package sampler

import (
	"bufio"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// TestSurvivorOtherDevice: a file is known by its device and its inode. One of another
// device is not taken for it, and does not stand in its way.
func TestSurvivorOtherDevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib")
	if err := os.WriteFile(path, []byte("\x7fELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	var vol unix.Statfs_t
	if err := unix.Statfs(path, &vol); err != nil {
		t.Fatal(err)
	}
	if vol.Type == unix.OVERLAYFS_SUPER_MAGIC || vol.Type == unix.BTRFS_SUPER_MAGIC {
		t.Skip("the file system shows other devices in maps than in stat")
	}
	st := info.Sys().(*syscall.Stat_t)
	own := procfs.Mapping{Start: 0x1000, End: 0x2000, Inode: st.Ino, Path: path,
		Dev: procfs.Dev{Major: unix.Major(uint64(st.Dev)), Minor: unix.Minor(uint64(st.Dev))}}
	other := own
	other.Dev.Minor++
	s := NewSurvivor(os.Getpid(), nil)
	defer s.Close()
	for _, open := range []func(procfs.Mapping) error{
		func(m procfs.Mapping) error { _, err := s.files.of(&m); return err },
		func(m procfs.Mapping) error { _, err := s.OpenFile(m); return err },
	} {
		if err := open(other); err == nil {
			t.Error("a file of the same number on another device is taken for the one that is mapped")
		}
		if err := open(own); err != nil {
			t.Errorf("the file itself: %v", err)
		}
	}
}

// TestSurvivorFile opens the program of a process that has ended: the file is
// read after the source of it was closed, as names are.
func TestSurvivorFile(t *testing.T) {
	cmd := targetCmd("nothing") // waits for its input
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Start returns while the kernel still loads the program.
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the target says %q, %v", line, err)
	}
	s := NewSurvivor(cmd.Process.Pid, nil)
	maps, err := s.Maps()
	cmd.Process.Kill()
	cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for i < len(maps) && (!maps[i].File() || maps[i].Perms&procfs.Exec == 0) {
		i++
	}
	if i == len(maps) {
		t.Fatalf("no mapped program in %v", maps)
	}
	again, err := s.Maps()
	if err != nil || len(again) != len(maps) {
		t.Errorf("after the end: %d mappings, %v; want the %d of before", len(again), err, len(maps))
	}
	f, err := s.OpenFile(maps[i])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s.Close()
	b := make([]byte, 4)
	if _, err := f.ReadAt(b, 0); err != nil || string(b) != "\x7fELF" {
		t.Errorf("read %q, %v; want an ELF header", b, err)
	}
}
