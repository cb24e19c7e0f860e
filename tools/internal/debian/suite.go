package debian

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// suite is apt's private view of one suite of Debian, for one architecture: a mirror whose index of one
// architecture is out of step with its Release file gives the others all the same.
type suite struct {
	dir  string
	conf string // apt.conf(5) of this view
}

// keyring is where package debian-archive-keyring has the keys.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// settings is the apt.conf of a view: its folder, its architecture.
const settings = `Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::preferences "-";
Dir::Etc::preferencesparts "-";
Dir::State::Lists "%[1]s/lists";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache";
APT::Architecture "%[2]s";
APT::Architectures { "%[2]s"; };
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
`

// suite returns the view of a suite for an architecture and makes it first if need be. The caller
// holds the lock.
func (c *Cache) suite(name, arch string) (suite, error) {
	dir := filepath.Join(c.Dir, "apt", name+"-"+arch)
	s := suite{dir: dir, conf: filepath.Join(dir, "apt.conf")}
	if _, err := os.Stat(filepath.Join(dir, "updated")); err == nil {
		return s, nil
	}
	mirror, err := mirror()
	if err != nil {
		return s, err
	}
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return s, err
		}
	}
	files := map[string]string{
		"status":       "", // no package is installed, so all are downloaded
		"sources.list": fmt.Sprintf("deb [arch=%s signed-by=%s] %s %s main\n", arch, keyring, mirror, name),
		"apt.conf":     fmt.Sprintf(settings, dir, arch),
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			return s, err
		}
	}
	if _, err := s.run("", "apt-get", "-qq", "update"); err != nil {
		return s, err
	}
	return s, os.WriteFile(filepath.Join(dir, "updated"), nil, 0o644)
}

// run runs an apt tool on the view, in folder dir, and returns its stdout.
func (s suite) run(dir, tool string, args ...string) (string, error) {
	cmd := exec.Command(tool, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "APT_CONFIG="+s.conf, "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s (%s): %w: %s", tool, strings.Join(args, " "),
			filepath.Base(s.dir), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// mirror asks apt for the mirror of the distribution's own packages.
func mirror() (string, error) {
	out, err := exec.Command("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("apt-get indextargets: %w (needs a Debian machine)", err)
	}
	for line := range strings.Lines(string(out)) {
		uri := strings.TrimSuffix(strings.TrimSpace(line), "/")
		if strings.HasSuffix(uri, "/debian") {
			return uri, nil
		}
	}
	return "", errors.New("no mirror of Debian in apt's sources (try: see /etc/apt/sources.list)")
}
