package main

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sfsample/output"
)

// dpkgLists are where Debian's package manager keeps the files of each package: PACKAGE.list or
// PACKAGE:ARCHITECTURE.list, a path in each line (dpkg(1), FILES).
const dpkgLists = "/var/lib/dpkg/info/*.list"

// nameless tells of the files whose functions have no symbols, with how many addresses of each, and of which
// packages they are; empty if there are none.
func nameless(files map[string]int, lists string) string {
	const most = 3
	sum := 0
	for _, n := range files {
		sum += n
	}
	if sum == 0 {
		return ""
	}
	worst := slices.SortedFunc(maps.Keys(files), func(a, b string) int { return cmp.Or(files[b]-files[a], strings.Compare(a, b)) })
	rest := max(0, len(worst)-most)
	worst = worst[:len(worst)-rest]
	var names []string
	for _, file := range worst {
		name := filepath.Base(file)
		if len(files) > 1 {
			name += fmt.Sprintf(" (%d)", files[file])
		}
		names = append(names, name)
	}
	if rest > 0 {
		names = append(names, output.Plural(int64(rest), "other"))
	}
	packages := "the debug packages of these"
	if p := owners(worst, lists); len(p) > 0 {
		packages = "the debug packages, -dbgsym or -dbg, of " + strings.Join(p, ", ")
	}
	return fmt.Sprintf("no symbols for %s of %s: named FILE:fn_ADDRESS (try: %s, or --debuginfod; -v lists what was looked for)",
		addresses(sum), strings.Join(names, ", "), packages)
}

func addresses(n int) string {
	if n == 1 {
		return "1 address"
	}
	return fmt.Sprintf("%d addresses", n)
}

// owners are the packages that files belong to, in their order, each once. A file below /usr may be
// listed without: that was its place before the two were merged.
func owners(files []string, lists string) (packages []string) {
	of := make(map[string]string)
	for _, f := range files {
		if filepath.IsAbs(f) {
			of[f] = ""
			of[strings.TrimPrefix(f, "/usr")] = ""
		}
	}
	if len(of) == 0 {
		return nil
	}
	all, _ := filepath.Glob(lists) // the pattern is a good one
	for _, list := range all {
		f, err := os.Open(list)
		if err != nil {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(list), ".list"), ":")
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if _, wanted := of[string(lines.Bytes())]; wanted {
				of[lines.Text()] = name
			}
		}
		f.Close()
	}
	for _, f := range files {
		name := of[f]
		if name == "" {
			name = of[strings.TrimPrefix(f, "/usr")]
		}
		if name != "" && !slices.Contains(packages, name) {
			packages = append(packages, name)
		}
	}
	return packages
}
