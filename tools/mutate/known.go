package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed equivalent.txt
var equivalents string

// known is a fault that changes nothing that can be seen. It is told by the
// lines that it changes, so that it stays found when others move.
type known struct {
	path, fn      string // of the file below the module, and the function
	before, after string
	reason        string
}

// is: k is the fault f of the package with this import path.
func (k *known) is(pkg string, f *fault) bool {
	_, dir, _ := strings.Cut(pkg, "/")
	if k.path != dir+"/"+f.file || k.fn != f.fn {
		return false
	}
	before, after := f.lines()
	return k.before == before && k.after == after
}

// readKnown reads equivalent.txt: paragraphs of a line "file function", a line
// that begins with "- ", one that begins with "+ ", and the reason. Lines that
// begin with # are comments.
func readKnown(text string) ([]known, error) {
	var list []known
	for para := range strings.SplitSeq(text, "\n\n") {
		var k known
		var reason []string
		for line := range strings.Lines(para) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case line == "" || strings.HasPrefix(line, "#"):
			case k.path == "":
				k.path, k.fn, _ = strings.Cut(line, " ")
			case k.before == "" && strings.HasPrefix(line, "- "):
				k.before = line[2:]
			case k.before != "" && k.after == "" && strings.HasPrefix(line, "+"):
				k.after = strings.TrimPrefix(line[1:], " ")
				if k.after == "" {
					k.after = " " // the whole line is taken out
				}
			case strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "+ "):
				return nil, fmt.Errorf("%s %s: two faults in one paragraph", k.path, k.fn)
			default:
				reason = append(reason, strings.TrimSpace(line))
			}
		}
		if k.path == "" {
			continue
		}
		k.after = strings.TrimSpace(k.after)
		k.reason = strings.Join(reason, " ")
		if k.before == "" || k.reason == "" {
			return nil, fmt.Errorf("equivalent.txt: the entry of %s %s is not complete (a line with -, one with +, a reason)", k.path, k.fn)
		}
		list = append(list, k)
	}
	return list, nil
}
