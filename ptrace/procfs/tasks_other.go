//go:build !linux

package procfs

// list reads the rest of the folder: for folders of test data.
func (d *TaskDir) list(ids []int) ([]int, error) {
	names, err := d.file.Readdirnames(-1)
	for _, name := range names {
		if id, ok := taskID([]byte(name)); ok {
			ids = append(ids, id)
		}
	}
	return ids, err
}
