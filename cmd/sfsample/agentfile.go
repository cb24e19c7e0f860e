package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// maxConfig bounds the size of an agent's file.
const maxConfig = 1 << 20

// setting is a line of an agent's file: a flag by its long name, and a value of it.
type setting struct {
	line       int
	key, value string
}

// readConfig sets the flags that an agent's file names.
func readConfig(name string, fs *pflag.FlagSet) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("--config: %w (give a file that can be read)", err)
	}
	if len(b) > maxConfig {
		return fmt.Errorf("--config %s: %d bytes are no list of settings", name, len(b))
	}
	settings, err := parseConfig(b)
	if err != nil {
		return fmt.Errorf("%s:%w", name, err)
	}
	for _, s := range settings {
		f := fs.Lookup(s.key)
		if f == nil || s.key == "config" || s.key == "help" || s.key == "version" || s.key == "dump" {
			hint := "sfsample --help lists the long flags, which are the keys"
			if meant, _ := (&argSplitter{fs: fs}).guess(s.key); meant != nil && meant.Name != "config" {
				hint = "write " + meant.Name
			}
			return fmt.Errorf("%s:%d: unknown key %q (%s)", name, s.line, s.key, hint)
		}
		if s.value == "" {
			return fmt.Errorf("%s:%d: %s has no value (%s)", name, s.line, s.key, strings.Replace(example(f), spell(f.Name)+" ", f.Name+": ", 1))
		}
		if err := fs.Parse([]string{"--" + s.key + "=" + s.value}); err != nil {
			return fmt.Errorf("%s:%d: %w", name, s.line, valueError(err))
		}
	}
	return nil
}

// parseConfig reads the part of YAML that a list of settings needs: "key: value", "key: [value, value]", or "key:" and a
// line "- value" for each; values may be quoted; # begins a comment. An error begins with its line.
func parseConfig(text []byte) (list []setting, err error) {
	key, keyLine, empty := "", 0, false // whose values may follow, a line each; there was none so far
	end := func() {
		if empty {
			list = append(list, setting{keyLine, key, ""})
		}
		key, empty = "", false
	}
	for i, raw := range bytes.Split(text, []byte("\n")) {
		n := i + 1
		line := strings.TrimRight(string(raw), " \t\r")
		word := strings.TrimLeft(line, " ")
		fail := func(format string, args ...any) ([]setting, error) {
			return nil, fmt.Errorf("%d: %s", n, fmt.Sprintf(format, args...))
		}
		switch {
		case word == "" || word[0] == '#' || line == "---":
		case word[0] == '\t':
			return fail("a tab (indent by blanks)")
		case word == "-" || strings.HasPrefix(word, "- "):
			if key == "" {
				return fail("a value of no key (write KEY: before it)")
			}
			v, err := configValue(strings.TrimSpace(word[1:]))
			if err != nil {
				return fail("%v", err)
			}
			list = append(list, setting{n, key, v})
			empty = false
		case word != line:
			return fail("%q is indented (settings begin at the line's begin, values of a list with -)", word)
		default:
			end()
			name, value, ok := strings.Cut(line, ":")
			if !ok || value != "" && value[0] != ' ' {
				return fail("%q is no setting (write KEY: VALUE, with a blank after the colon)", line)
			}
			values, err := configValues(strings.TrimSpace(value))
			if err != nil {
				return fail("%v", err)
			}
			for _, v := range values {
				list = append(list, setting{n, name, v})
			}
			if len(values) == 0 {
				key, keyLine, empty = name, n, true
			}
		}
	}
	end()
	return list, nil
}

// configValues reads what stands behind a key: nothing, a value, or some in brackets.
func configValues(text string) (list []string, err error) {
	if text == "" || text[0] == '#' {
		return nil, nil
	}
	if text[0] != '[' {
		v, err := configValue(text)
		return []string{v}, err
	}
	inside, rest, ok := strings.Cut(text[1:], "]")
	if rest = strings.TrimSpace(rest); !ok || rest != "" && rest[0] != '#' {
		return nil, fmt.Errorf("%s has no ] at its end", text)
	}
	for _, word := range strings.Split(inside, ",") {
		v, err := configValue(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// configValue reads a value, which may be quoted.
func configValue(text string) (string, error) {
	if text != "" && (text[0] == '"' || text[0] == '\'') {
		quote := text[:1]
		inside, rest, ok := strings.Cut(text[1:], quote)
		if rest = strings.TrimSpace(rest); !ok || rest != "" && rest[0] != '#' {
			return "", fmt.Errorf("%s: the quotes do not match", text)
		}
		return inside, nil
	}
	if before, _, ok := strings.Cut(text, " #"); ok {
		text = strings.TrimSpace(before)
	}
	if text != "" && strings.ContainsAny(text[:1], "{&*!|>%@`") {
		return "", fmt.Errorf("%q begins with a special character (put it in quotes)", text)
	}
	return text, nil
}
