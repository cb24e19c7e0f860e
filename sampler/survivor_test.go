package sampler

import (
	"bufio"
	"testing"

	"sfsample/ptrace/procfs"
)

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
	s := NewSurvivor(cmd.Process.Pid)
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
