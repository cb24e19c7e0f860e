package procfs

import "io/fs"

// taskID gives the id that a name in a task folder stands for.
func taskID(name []byte) (int, bool) {
	n, rest, ok := decimal(name)
	return int(n), ok && len(rest) == 0 && n > 0 && n <= 1<<31-1
}

// TaskIDs lists the threads of a process in the folder's order: by birth, the leader first. A thread that ends meanwhile can
// hide another, and one born meanwhile may be missing: list again until nothing
// is new. An empty list means that the process is gone. It is empty for a moment, too, while a thread that calls exec takes
// the leader's place (de_thread, fs/exec.c), so it is asked again.
func (f FS) TaskIDs(pid int) (ids []int, err error) {
	for i := 0; i < listings && len(ids) == 0 && err == nil; i++ { // the folder of one that is gone cannot be opened
		ids, err = numbered(f.Path(pid, "task"))
	}
	return ids, err
}

// PIDs lists the processes that the folder shows.
func (f FS) PIDs() ([]int, error) { return numbered(f.root()) }

// listings bounds how often threads are listed that vanish all the time.
const listings = 100

// LiveTask returns a thread of the process that does not exit and has not exited,
// the leader if it lives. By it everything can be read that belongs to the process as a
// whole: a leader that has exited before its process shows empty maps.
// fs.ErrNotExist when no thread is alive.
func (f FS) LiveTask(pid int) (int, error) {
	for range listings {
		ids, err := f.TaskIDs(pid)
		if err != nil {
			return 0, err
		}
		gone := false
		for _, tid := range ids {
			s, err := f.Task(pid, tid).Stat()
			// A thread that exits gives back its memory while it still runs (exit_mm, kernel/exit.c).
			if err == nil && s.State != 'Z' && s.State != 'X' && s.Flags&FlagExiting == 0 {
				return tid, nil
			}
			gone = gone || Gone(err)
		}
		if !gone { // else it may be the one that has called exec, which goes by the leader's id from then on (de_thread, fs/exec.c)
			break
		}
	}
	return 0, &fs.PathError{Op: "find a live thread", Path: f.Path(pid, "task"), Err: fs.ErrNotExist}
}
