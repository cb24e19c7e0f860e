//go:build !linux

package procfs

import "os"

// numbered lists the names in a folder that are numbers: for folders of test data.
func numbered(dir string) (ids []int, err error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	names, err := file.Readdirnames(-1)
	for _, name := range names {
		if id, ok := taskID([]byte(name)); ok {
			ids = append(ids, id)
		}
	}
	return ids, err
}
