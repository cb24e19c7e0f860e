package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestManual: the manual page and the completions know every flag, and their readers take them.
func TestManual(t *testing.T) {
	page := sfsample(t, "help", "man")
	page.want(t, exitDone)
	shells := map[string]string{}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		o := sfsample(t, "help", shell)
		o.want(t, exitDone)
		shells[shell] = o.stdout
	}
	newFlags(new(config)).VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(page.stdout, strings.ReplaceAll("--"+f.Name, "-", `\-`)) {
			t.Errorf("the manual page lacks --%s", f.Name)
		}
		for shell, text := range shells {
			if want := map[bool]string{true: " -l " + f.Name, false: "--" + f.Name}[shell == "fish"]; !strings.Contains(text, want) {
				t.Errorf("%s does not know --%s", shell, f.Name)
			}
		}
	})
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash on this machine")
	}
	script := shells["bash"] + `COMP_WORDS=(sfsample --threads a); COMP_CWORD=2; _sfsample_words; echo "${COMPREPLY[*]}"
COMP_WORDS=(sfsample --no-r); COMP_CWORD=1; _sfsample_words; echo "${COMPREPLY[*]}"
COMP_WORDS=(sfsample d); COMP_CWORD=1; _sfsample_words; echo "${COMPREPLY[*]}"`
	cmd := exec.Command(bash, "--norc", "-c", script)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	got, err := cmd.CombinedOutput()
	if err != nil || string(got) != "all\n--no-restart\ndump diff\n" {
		t.Errorf("bash completes %q, %v", got, err)
	}
}
