package output

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// flamegraphPL returns the command line of flamegraph.pl, which Debian's
// libdevel-nytprof-perl carries.
func flamegraphPL(t *testing.T) []string {
	t.Helper()
	const packaged = "/usr/share/perl5/Devel/NYTProf/flamegraph.pl"
	if file, err := exec.LookPath("flamegraph.pl"); err == nil {
		return []string{file}
	}
	if _, err := os.Stat(packaged); err == nil {
		if perl, err := exec.LookPath("perl"); err == nil {
			return []string{perl, packaged}
		}
	}
	t.Skip("no flamegraph.pl on this machine")
	return nil
}

// TestFlamegraphPL draws the folded output with flamegraph.pl: it has to find
// the same names with the same weights.
func TestFlamegraphPL(t *testing.T) {
	args := flamegraphPL(t)
	for name, o := range map[string]Options{"plain": {}, "lines by thread": {Lines: true, By: ByThread}} {
		t.Run(name, func(t *testing.T) {
			text := write(t, folded(o), testRun())
			cmd := exec.Command(args[0], append(args[1:], "--minwidth=0")...)
			cmd.Stdin = bytes.NewReader(text)
			var errors strings.Builder
			cmd.Stderr = &errors
			picture, err := cmd.Output()
			if err != nil || errors.Len() > 0 {
				t.Fatalf("%v: %s", err, errors.String())
			}
			got := make(map[string]int)
			for _, m := range regexp.MustCompile(`<title>(.*) \((\d+) samples, [0-9.]+%\)</title>`).FindAllStringSubmatch(string(picture), -1) {
				got[html.UnescapeString(m[1])+" "+m[2]]++
			}
			want := make(map[string]int)
			for path, weight := range weights(t, text) {
				last := path[strings.LastIndexByte(path, ';')+1:]
				last = strings.NewReplacer("<", "(", ">", ")").Replace(last) // as flamegraph.pl does
				want[fmt.Sprint(last, " ", weight)]++
			}
			for bar, n := range want {
				if got[bar] != n {
					t.Errorf("%d bars %q, want %d", got[bar], bar, n)
				}
			}
		})
	}
}
