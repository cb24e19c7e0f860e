package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// maxConfig bounds the size of an agent's file.
const maxConfig = 1 << 20

// setting is a line of an agent's file: a flag by its long name, and a value of it.
type setting struct {
	line       int
	key, value string
}

// agentFile is what an agent's file has set.
type agentFile struct {
	name     string
	settings []setting
}

// readConfig sets the flags that an agent's file names.
func readConfig(name string, fs *pflag.FlagSet) (agentFile, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return agentFile{}, fmt.Errorf("--config: %w (give a file that can be read)", err)
	}
	if len(b) > maxConfig {
		return agentFile{}, fmt.Errorf("--config %s: %d bytes are no list of settings (give the agent's own file)", name, len(b))
	}
	settings, err := parseConfig(b)
	if err != nil {
		return agentFile{}, fmt.Errorf("%s:%w", name, err)
	}
	for i, s := range settings {
		fail := func(format string, args ...any) (agentFile, error) {
			return agentFile{}, fmt.Errorf("%s:%d: %w", name, s.line, fmt.Errorf(format, args...))
		}
		f := fs.Lookup(s.key)
		if f == nil || s.key == "config" || s.key == "help" || s.key == "version" || s.key == "dump" {
			hint := "sfsample --help lists the long flags, which are the keys"
			if meant, _ := (&argSplitter{fs: fs}).guess(s.key); meant != nil && meant.Name != "config" {
				hint = "write " + meant.Name
			}
			return fail("unknown key %q (%s)", s.key, hint)
		}
		hint := strings.Replace(example(f), spell(f.Name)+" ", f.Name+": ", 1)
		if s.value == "" {
			return fail("%s has no value (%s)", s.key, hint)
		}
		if i > 0 && settings[i-1].key == s.key && !takesSeveral(f) {
			return fail("%s takes one value (%s)", s.key, hint)
		}
		if err := fs.Parse([]string{"--" + s.key + "=" + s.value}); err != nil {
			return fail("%w", valueError(err))
		}
	}
	return agentFile{name, settings}, nil
}

// place tells the line of an error that begins with a flag which the file has set (-hz …, --record and -o …), and flags of the
// command line have not set anew.
func (a *agentFile) place(err error, fs *pflag.FlagSet, flags []string) error {
	lines := strings.Split(err.Error(), "\n") // one for each that errors.Join has joined
	for i, text := range lines {
		if at := a.find(text, fs, flags); at > 0 {
			lines[i] = fmt.Sprintf("%s:%d: %s", a.name, at, text)
		}
	}
	return errors.New(strings.Join(lines, "\n"))
}

// find is the line of the setting that text begins with: flag and value, else the flag alone. 0: there is none.
func (a *agentFile) find(text string, fs *pflag.FlagSet, flags []string) (line int) {
	words := append(strings.Fields(text), "", "", "")
	names := words[:1]
	if words[1] == "and" {
		names = []string{words[0], words[2]}
	}
	for _, name := range names {
		name, _, _ = strings.Cut(strings.TrimRight(name, ":,"), "=")
		for _, s := range a.settings {
			f := fs.Lookup(s.key)
			anew := slices.ContainsFunc(flags, func(g string) bool { return g == "--"+s.key || strings.HasPrefix(g, "--"+s.key+"=") })
			_, file, _ := strings.Cut(s.value, "=") // of FORMAT=FILE
			told := func(value string) bool { return value != "" && strings.HasPrefix(text, name+" "+value+":") }
			switch {
			case strings.HasPrefix(text, fmt.Sprintf("%s %q:", s.key, s.value)): // as targets tells it
				return s.line
			case name != "--"+s.key && name != spell(s.key) && (f.Shorthand == "" || name != "-"+f.Shorthand):
			case takesSeveral(f) && (told(s.value) || told(file)):
				return s.line
			case !anew && line == 0:
				line = s.line
			}
		}
	}
	return line
}

// howConfig is the remedy for what is no list of settings.
const howConfig = "write KEY: VALUE, with a blank after the colon, or KEY: [VALUE, VALUE], and special characters in quotes"

// parseConfig reads settings from YAML: a mapping of keys, each to a value or a list of them, without anything that YAML has
// besides. An error begins with its line.
func parseConfig(text []byte) (list []setting, err error) {
	above, text := skipHead(text)
	if !utf8.Valid(text) {
		return nil, errors.New("1: it is no text in UTF-8 (write it as such)")
	}
	fail := func(line int, format string, args ...any) ([]setting, error) {
		return nil, fmt.Errorf("%d: %s", above+line, fmt.Sprintf(format, args...))
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, more yaml.Node
	err = decoder.Decode(&document)
	if err == io.EOF {
		return nil, nil
	}
	if err == nil {
		if err = decoder.Decode(&more); err == nil {
			return fail(more.Line, "a second document begins (leave out this line)")
		}
	}
	if err != io.EOF {
		line, why := yamlError(err, text)
		return fail(line, "%s (%s)", why, howConfig)
	}
	root := document.Content[0]
	switch {
	case root.ShortTag() == "!!null" && isPlain(root, yaml.ScalarNode):
		return nil, nil
	case !isPlain(root, yaml.MappingNode):
		return fail(root.Line, "this is no setting (%s)", howConfig)
	}
	lines := map[string]int{}
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if !isPlain(key, yaml.ScalarNode) {
			return fail(key.Line, "this is no key (%s)", howConfig)
		}
		if before := lines[key.Value]; before > 0 {
			return fail(key.Line, "%s is set in line %d too (give it once; if it takes several values, as a list: [VALUE, VALUE])", key.Value, above+before)
		}
		lines[key.Value] = key.Line
		values := []*yaml.Node{value}
		if isPlain(value, yaml.SequenceNode) {
			values = value.Content
		}
		for _, v := range values {
			switch {
			case !isPlain(v, yaml.ScalarNode):
				return fail(v.Line, "%s has neither a value nor a list of values, but a mapping, list, tag, anchor or alias (%s)", key.Value, howConfig)
			case v.ShortTag() == "!!null":
				list = append(list, setting{above + v.Line, key.Value, ""})
			default:
				list = append(list, setting{above + v.Line, key.Value, v.Value})
			}
		}
		if len(values) == 0 {
			list = append(list, setting{above + key.Line, key.Value, ""})
		}
	}
	return list, nil
}

// isPlain reports whether a node is of this kind, and has no anchor and no tag.
func isPlain(n *yaml.Node, kind yaml.Kind) bool {
	return n.Kind == kind && n.Anchor == "" && n.Style&yaml.TaggedStyle == 0
}

// skipHead leaves out the lines above the first setting. The errors of yaml tell where the mapping begins, and where they
// are only if that is its first line (decode.go, fail).
func skipHead(text []byte) (above int, rest []byte) {
	for marked := false; ; above++ {
		line, rest, ok := bytes.Cut(text, []byte("\n"))
		line = bytes.TrimRight(line, " \t\r")
		mark := string(line) == "---"
		if word := bytes.TrimLeft(line, " "); !ok || mark && marked || !mark && len(word) > 0 && word[0] != '#' || bytes.ContainsAny(line, "\r\u0085\u2028\u2029") {
			return above, text
		}
		marked, text = marked || mark, rest
	}
}

var (
	yamlLine   = regexp.MustCompile(`^line (\d+): `)
	yamlParser = regexp.MustCompile(`expected (<|node content|'-' indicator|key$|',' or)|^found (undefined tag|duplicate %|incompatible)`)
	yamlAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)
)

// yamlError takes an error of yaml apart. Its parser counts lines from 0, its scanner from 1, and of an alias it tells none.
func yamlError(err error, text []byte) (line int, why string) {
	why = strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlLine.FindStringSubmatch(why); m != nil {
		line, _ = strconv.Atoi(m[1])
		why = why[len(m[0]):]
		if yamlParser.MatchString(why) {
			line = min(line+1, 1+bytes.Count(bytes.TrimRight(text, "\n"), []byte("\n")))
		}
	} else if m := yamlAnchor.FindStringSubmatch(why); m != nil {
		before, _, _ := bytes.Cut(text, []byte("*"+m[1]))
		line = 1 + bytes.Count(before, []byte("\n"))
	}
	return max(line, 1), why
}
