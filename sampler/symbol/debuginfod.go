package symbol

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sfsample/internal/late"
	"sfsample/sampler/symbol/rootfs"
)

// Debuginfod finds debug files in the cache folder of debuginfod's client and,
// if URLs are given, asks servers. It may be used by any number of objects and
// goroutines.
type Debuginfod struct {
	// Cache is the client's cache folder: see [DebuginfodCache]. Files that
	// servers send are kept there too.
	Cache string
	// URLs are servers to ask, in order; none: only the cache is used.
	URLs []string
	// Timeout bounds one request, from its beginning to the last byte.
	Timeout time.Duration
	// Progress, if set, is called with one line of text when a request begins
	// and ends.
	Progress func(line string)
	Log      *slog.Logger

	mu   sync.Mutex      // one request at a time
	down map[string]bool // servers that failed to answer, which are not asked again
}

// maxDebuginfod bounds what a server may send: debug files of browsers exceed
// 2 GB.
const maxDebuginfod = 8 << 30

var errNoDebuginfod = errors.New("debuginfod does not have it")

// DebuginfodCache returns the cache folder that debuginfod_find_debuginfo(3)
// describes: DEBUGINFOD_CACHE_PATH, XDG_CACHE_HOME/debuginfod_client or
// ~/.cache/debuginfod_client, and the older ~/.debuginfod_client_cache if that
// exists. Empty if the environment names none. getenv is os.Getenv.
func DebuginfodCache(getenv func(string) string) string {
	if dir := getenv("DEBUGINFOD_CACHE_PATH"); dir != "" {
		return dir
	}
	home := getenv("HOME")
	if home != "" {
		old := filepath.Join(home, ".debuginfod_client_cache")
		if st, err := os.Stat(old); err == nil && st.IsDir() {
			return old
		}
	}
	if dir := getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "debuginfod_client")
	}
	if home != "" {
		return filepath.Join(home, ".cache", "debuginfod_client")
	}
	return ""
}

// open returns the debug file of a build-id (lower-case hex, which makes it a
// safe file name). Once until, which may be nil, is done no server is waited for.
func (d *Debuginfod) open(until *late.Time, id string) (*rootfs.File, error) {
	if d.Cache == "" {
		return nil, errNoDebuginfod
	}
	f, err := d.cached(id)
	if err == nil || len(d.URLs) == 0 {
		return f, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if f, err := d.cached(id); err == nil {
		return f, nil
	}
	var errs []error
	for _, url := range d.URLs {
		if until.Over() {
			errs = append(errs, late.ErrNoTime)
			break
		}
		if d.down[url] {
			continue
		}
		err := d.fetch(until, url, id)
		if err == nil {
			return d.cached(id)
		}
		if errors.As(err, new(*neturl.Error)) || errors.Is(err, context.DeadlineExceeded) { // no answer, or too slow a one
			if d.down == nil {
				d.down = map[string]bool{}
			}
			d.down[url] = true
			d.say("%s is not asked again", url)
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, errNoDebuginfod
	}
	return nil, errors.Join(errs...)
}

// cached opens the file in the cache folder. An empty file there says that the
// servers did not have it.
func (d *Debuginfod) cached(id string) (*rootfs.File, error) {
	root, err := rootfs.Open(d.Cache)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(id + "/debuginfo")
	if err != nil {
		return nil, err
	}
	if f.Size() == 0 {
		f.Close()
		return nil, errNoDebuginfod
	}
	return f, nil
}

func (d *Debuginfod) say(format string, args ...any) {
	if d.Progress != nil {
		d.Progress(fmt.Sprintf(format, args...))
	}
}

// fetch asks one server (debuginfod(8), "WEBAPI") and puts the file into the
// cache.
func (d *Debuginfod) fetch(until *late.Time, server, id string) (err error) {
	url := strings.TrimRight(server, "/") + "/buildid/" + id + "/debuginfo"
	d.say("asking %s for the debug file of build-id %s", server, id)
	begin := time.Now()
	defer func() {
		if err != nil {
			d.say("no debug file from %s: %v", server, err)
		} else {
			d.say("got the debug file of build-id %s in %v", id, time.Since(begin).Round(time.Millisecond))
		}
	}()
	timeout := d.Timeout
	if timeout <= 0 {
		timeout = 90 * time.Second // DEBUGINFOD_TIMEOUT's default
	}
	ctx, cancel := context.WithTimeout(until.Until(), timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return errNoDebuginfod
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: status %s", url, resp.Status)
	}
	return d.keep(id, resp.Body)
}

// keep writes r to the cache, whole or not at all.
func (d *Debuginfod) keep(id string, r io.Reader) error {
	dir := filepath.Join(d.Cache, id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, "debuginfo.*")
	if err != nil {
		return err
	}
	n, err := io.Copy(tmp, io.LimitReader(r, maxDebuginfod+1))
	if err == nil && n > maxDebuginfod {
		err = &FormatError{0, "debug file is too large", uint64(n)}
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), filepath.Join(dir, "debuginfo"))
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}
