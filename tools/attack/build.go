package main

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed src
var sources embed.FS

// builder makes programs in a folder, each once.
type builder struct {
	dir  string
	done map[string]string
}

func newBuilder(dir string) (*builder, error) {
	if err := os.CopyFS(dir, sources); err != nil {
		return nil, fmt.Errorf("write the sources: %w", err)
	}
	return &builder{dir, map[string]string{}}, nil
}

// reachable lets other users run what is in a temporary folder.
func reachable(dir string) error {
	for ; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// build returns the path of the program of a source.
func (b *builder) build(source string) (string, error) {
	if path := b.done[source]; path != "" {
		return path, nil
	}
	path := filepath.Join(b.dir, strings.TrimSuffix(source, ".c"))
	cmd := exec.Command("gcc", "-O1", "-g", "-pthread", "-Wno-unused-result", "-o", path, filepath.Join(b.dir, "src", source))
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd.Args, err, text)
	}
	b.done[source] = path
	return path, nil
}
