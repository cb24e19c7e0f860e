package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"sfsample/tools/internal/debian"
	"sfsample/tools/internal/guest/wire"
)

// Suites of Debian: one that a mirror has in a broken state is stood in for by the next. Kernels from 6.12 on have the virtio
// console built in; 7.x of s390x run no 31-bit programs.
var (
	emulator  = debian.From("trixie")
	libraries = []string{"trixie", "forky"}
	kernels   = []string{"trixie", "bookworm-backports"}
)

// arch is what differs between the machines.
type arch struct {
	triplet string   // of Debian
	kernel  string   // package whose dependency is the kernel
	program string   // of qemu
	args    []string // of qemu; %s: file for the console
	bus     string   // of virtio devices
	console string   // of the kernel
}

var archs = map[string]arch{
	"arm64": {
		triplet: "aarch64-linux-gnu",
		kernel:  "linux-image-cloud-arm64", program: "qemu-system-aarch64",
		// pauth-impdef: the real algorithm of pointer authentication is very
		// slow to emulate. lpa2=off: with 52-bit addresses 3 bits remain for
		// the code, and one signed address in eight would look unsigned.
		args: []string{"-machine", "virt", "-cpu", "max,pauth-impdef=on,lpa2=off", "-serial", "file:%s"},
		bus:  "pci", console: "ttyAMA0",
	},
	"s390x": {
		triplet: "s390x-linux-gnu",
		kernel:  "linux-image-s390x", program: "qemu-system-s390x",
		args: []string{"-machine", "s390-ccw-virtio", "-cpu", "max",
			"-chardev", "file,id=console,path=%s", "-device", "sclpconsole,chardev=console"},
		bus: "ccw", console: "ttysclp0",
	},
}

// Archs are the architectures of guests.
func Archs() []string { return []string{"arm64", "s390x"} }

// Machine describes a guest. Cache and Arch must be set.
type Machine struct {
	Cache     *debian.Cache
	Arch      string // GOARCH name
	MemoryMiB int    // 0: 1536
	CPUs      int    // 0: 2
	// Files are put into the guest: its path, without leading slash, to the
	// path here. A folder is taken with all that is below it.
	Files map[string]string
	// Folders are made in the guest, by paths without leading slash.
	Folders []string
	// Libraries adds Debian's C library, loader and elfutils.
	Libraries bool
}

// TestFiles returns, for Machine.Files, the testdata folders of the module in
// folder module, each at the same place below src in the guest. It is all that
// a test finds there of its module.
func TestFiles(module string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		switch d.Name() {
		case ".git":
			return fs.SkipDir
		case "testdata":
			rel, err := filepath.Rel(module, path)
			if err != nil {
				return err
			}
			files[filepath.ToSlash(filepath.Join("src", rel))] = path
			return fs.SkipDir
		}
		return nil
	})
	return files, err
}

// Fetch downloads what the machine needs and returns the folders.
func (m *Machine) Fetch() (dirs []string, err error) {
	p, err := m.parts()
	if err != nil {
		return nil, err
	}
	return []string{p.qemu, p.kernelDir, p.libraries}, nil
}

type parts struct {
	qemu, kernelDir, kernel, libraries string
}

func (m *Machine) parts() (p parts, err error) {
	a, ok := archs[m.Arch]
	if !ok {
		return p, fmt.Errorf("no guest for architecture %q (try: %s)", m.Arch, strings.Join(Archs(), " or "))
	}
	if p.qemu, err = m.Cache.Root("qemu", emulator, "qemu-system-s390x", "qemu-system-arm"); err != nil {
		return p, err
	}
	if p.libraries, err = m.Cache.Root("guest-"+m.Arch, debian.Source{Arch: m.Arch, Suites: libraries}, "libc6", "elfutils"); err != nil {
		return p, err
	}
	p.kernelDir = filepath.Join("kernels", m.Arch)
	if p.kernelDir, err = m.Cache.PartOf(p.kernelDir, debian.Source{Arch: m.Arch, Suites: kernels}, a.kernel, "linux-image-", "./boot"); err != nil {
		return p, err
	}
	images, err := filepath.Glob(filepath.Join(p.kernelDir, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return p, fmt.Errorf("%d kernels in %s, want 1", len(images), p.kernelDir)
	}
	p.kernel = images[0]
	return p, nil
}

// Run boots the machine, runs the jobs and switches it off. For each job
// handle is called with what the job prints, up to io.EOF; then ended returns
// how it ended, nil when well. An error of Run is one of the machine; its text
// has the end of the console.
func (m *Machine) Run(ctx context.Context, jobs []wire.Job, handle func(job int, output io.Reader, ended func() error) error) error {
	p, err := m.parts()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "guest")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	image := filepath.Join(tmp, "initramfs")
	if err := m.pack(image, tmp, p, jobs); err != nil {
		return fmt.Errorf("initramfs: %w", err)
	}
	console := filepath.Join(tmp, "console")
	cmd := m.command(ctx, p, image, console)
	// qemu takes the end of its standard input for the end of its output, so
	// it gets one that does not end before it does.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	frames, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	err = distribute(frames, len(jobs), handle)
	if err != nil {
		_ = cmd.Process.Kill() // the error is told already
	}
	waitErr := cmd.Wait()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return fmt.Errorf("%s guest: %w (qemu: %v) %s\n%s", m.Arch, err, waitErr, stderr.Bytes(), tail(console, 2000))
}

// distribute reads frames and hands each job's output to handle.
func distribute(frames io.Reader, jobs int, handle func(int, io.Reader, func() error) error) error {
	for i := range jobs {
		r, w := io.Pipe()
		var ended error
		result := make(chan error, 1)
		go func() {
			err := handle(i, r, func() error { return ended })
			r.Close()
			result <- err
		}()
		machineErr := copyJob(frames, w, &ended)
		w.Close()
		if err := <-result; err != nil {
			return err
		}
		if machineErr != nil {
			return fmt.Errorf("job %d: %w", i, machineErr)
		}
	}
	return nil
}

// copyJob copies one job's output to w and its end to ended. After an error of
// the machine, ended tells it too: the job is not known to have ended well.
func copyJob(frames io.Reader, w io.Writer, ended *error) error {
	for {
		kind, b, err := wire.Read(frames)
		switch {
		case err != nil:
			*ended = fmt.Errorf("the guest is gone: %w", err)
			return *ended
		case kind == wire.Output:
			// Where handle has stopped reading, the rest is dropped.
			_, _ = w.Write(b)
		case kind == wire.Exit:
			if len(b) > 0 {
				*ended = errors.New(string(b))
			}
			return nil
		default:
			*ended = fmt.Errorf("the guest cannot go on: %s", b)
			return *ended
		}
	}
}

// command is the command line of qemu. It runs from its folder, by that
// folder's own loader, so that this machine's C library does not matter.
func (m *Machine) command(ctx context.Context, p parts, image, console string) *exec.Cmd {
	a := archs[m.Arch]
	lib := filepath.Join(p.qemu, "usr/lib/x86_64-linux-gnu")
	args := []string{"--library-path", lib, filepath.Join(p.qemu, "usr/bin", a.program)}
	for _, arg := range a.args {
		args = append(args, strings.ReplaceAll(arg, "%s", console))
	}
	args = append(args,
		"-accel", "tcg,thread=multi", "-smp", strconv.Itoa(or(m.CPUs, 2)), "-m", strconv.Itoa(or(m.MemoryMiB, 1536)),
		"-L", filepath.Join(p.qemu, "usr/share/qemu"),
		"-nodefaults", "-display", "none", "-monitor", "none", "-no-reboot",
		"-kernel", p.kernel, "-initrd", image,
		"-append", "console="+a.console+" rdinit=/vm/init panic=-1 loglevel=4",
		"-device", "virtio-serial-"+a.bus,
		"-chardev", "stdio,id=out,signal=off", "-device", "virtserialport,chardev=out,name="+wire.Port)
	cmd := exec.CommandContext(ctx, filepath.Join(p.qemu, "lib64/ld-linux-x86-64.so.2"), args...)
	cmd.Env = append(os.Environ(), "QEMU_MODULE_DIR="+filepath.Join(lib, "qemu"))
	return cmd
}

func or(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// pack writes the initramfs. It is not compressed: unpacking is slower under
// emulation than reading.
func (m *Machine) pack(image, tmp string, p parts, jobs []wire.Job) error {
	initProg := filepath.Join(tmp, "init")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", initProg, "sfsample/tools/internal/guest/init")
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+m.Arch, "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build init: %w: %s", err, out)
	}
	list, err := json.Marshal(jobs)
	if err != nil {
		return err
	}
	jobsFile := filepath.Join(tmp, "jobs")
	if err := os.WriteFile(jobsFile, list, 0o644); err != nil {
		return err
	}
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	defer f.Close()
	a := newArchive(f)
	for _, dir := range []string{"proc", "sys", "dev", "tmp", "usr/bin"} {
		a.folder(dir)
	}
	if m.Libraries {
		a.tree(".", p.libraries, func(rel string) bool { return inGuest(rel, archs[m.Arch].triplet) })
	}
	for _, dir := range m.Folders {
		a.folder(dir)
	}
	for to, from := range m.Files {
		info, err := os.Stat(from)
		switch {
		case err != nil:
			return err
		case info.IsDir():
			a.tree(to, from, func(string) bool { return true })
		default:
			a.file(to, info.Mode(), from)
		}
	}
	a.file("vm/init", 0o755, initProg)
	a.file(strings.TrimPrefix(wire.JobsFile, "/"), 0o644, jobsFile)
	if err := a.close(); err != nil {
		return err
	}
	return f.Close()
}

// inGuest tells whether a file of the unpacked packages goes into the guest: the
// C library's loader, the shared libraries, eu-stack and eu-readelf. The rest
// (documentation, character sets, other architectures) would only slow the boot.
func inGuest(rel, triplet string) bool {
	switch dir, name := filepath.Split(rel); {
	case dir == "" || rel == "usr/bin" || rel == "usr/lib" || rel == "usr/lib/"+triplet:
		return !strings.HasPrefix(name, ".")
	case dir == "usr/bin/":
		return name == "eu-stack" || name == "eu-readelf"
	case dir == "usr/lib/":
		return strings.HasPrefix(name, "ld")
	case dir == "usr/lib/"+triplet+"/":
		return strings.Contains(name, ".so")
	}
	return false
}

// tail is the end of a text file, "" if there is none.
func tail(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b[max(0, len(b)-n):])
}
