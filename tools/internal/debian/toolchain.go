package debian

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Suites of the toolchains. An assembler writes one version of SFrame only:
// binutils 2.47 of forky version 3, for all three architectures; binutils 2.44
// of trixie version 2, for x86-64 and arm64.
const (
	SFrame3Suite = "forky"
	SFrame2Suite = "trixie"
)

// Toolchain returns the folder with gcc and binutils of a suite for x86-64
// (with -m32), arm64 and s390x.
func (c *Cache) Toolchain(suite string) (string, error) {
	name := "toolchain-" + suite
	if dir := filepath.Join(c.Dir, "roots", name); isDone(dir) {
		return dir, nil
	}
	// gcc-multilib itself conflicts with the cross compilers; the package
	// with the compiler's number behind it does not.
	multilib, err := c.Depends(From(suite), "gcc-multilib", "gcc-")
	if err != nil {
		return "", err
	}
	packages := []string{
		"gcc", "binutils", "libc6-dev",
		"gcc-s390x-linux-gnu", "libc6-dev-s390x-cross",
		"gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross",
	}
	for _, p := range multilib {
		if ok, _ := filepath.Match("gcc-[0-9]*-multilib", p); ok {
			packages = append(packages, p)
		}
	}
	return c.Root(name, From(suite), packages...)
}

func isDone(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, done))
	return err == nil
}

// Command returns a command that runs a program of an unpacked root with the
// folder dir as its working folder. The program sees the root as /, and dir as
// /src: what it is to read or write must lie below dir and be named relatively.
// It needs root.
//
// The command starts this program again with args[0] set to chrootArg, so main
// must call [ChrootMain] first.
func Command(root, dir, prog string, args ...string) (*exec.Cmd, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("run %s: only root may chroot (try: as root)", prog)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Args = append([]string{chrootArg, root, dir, prog}, args...)
	return cmd, nil
}

const chrootArg = "sfsample-chroot"

// ChrootMain does the child's part of [Command] when the process was started
// for it, and returns at once otherwise.
func ChrootMain() {
	if len(os.Args) < 4 || os.Args[0] != chrootArg {
		return
	}
	root, dir, argv := os.Args[1], os.Args[2], os.Args[3:]
	err := enter(root, dir)
	if err == nil {
		env := []string{"PATH=/usr/bin", "LC_ALL=C", "TMPDIR=/tmp"}
		err = unix.Exec(filepath.Join("/usr/bin", argv[0]), argv, env)
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", argv[0], err)
	os.Exit(125)
}

// enter makes root the root folder of this process, with dir at /src. The
// mounts are in a namespace of their own and vanish with the process.
func enter(root, dir string) error {
	runtime.LockOSThread() // a mount namespace is a thread's
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err != nil && !(err == unix.EINVAL && noneShared()) {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for from, to := range map[string]string{dir: "src", "/dev": "dev"} {
		if err := unix.Mount(from, filepath.Join(root, to), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", from, err)
		}
	}
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("chroot %s: %w", root, err)
	}
	return unix.Chdir("/src")
}

// noneShared reports whether no mount that we see passes mounts on to others
// (mount_namespaces(7)). In a chroot whose root is a plain folder that cannot be
// arranged: mount(2) takes mount points only.
func noneShared() bool {
	b, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && !strings.Contains(string(b), " shared:")
}
