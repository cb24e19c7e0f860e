//go:build !unix

package procfs

import (
	"io"
	"os"
)

// readFile reads at most max bytes of a file.
func readFile(path string, max int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, max))
}

// readPieces has take called with a file, whole.
func readPieces(path string, take func(piece []byte) error) error {
	b, err := readFile(path, maxMaps+1)
	if err != nil {
		return err
	}
	return take(b)
}
