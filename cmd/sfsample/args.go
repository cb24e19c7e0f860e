package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// parsedArgs is a command line taken apart: what pflag reads, and the words
// around it.
type parsedArgs struct {
	flags   []string // each "--name" or "--name=value"
	topic   string   // of help: "man", or a shell
	sub     string   // one of subcommands, or ""
	files   []string // replay's FILE, diff's two
	command []string // what follows "--"; nil without "--"
}

// splitArgs takes args apart by the flags that fs knows.
//
// pflag knows --hz and -F, but reads "-hz 99" as -h -z, and "-duration 3" as
// -d with the value "uration". So each word with a single dash is looked at
// here: -hz is a name of its own, one letter is a short flag, and a value may
// follow a letter directly where it cannot be mistaken (-p1,2). Any other is
// an error that shows the right spelling. The value of a flag is passed over,
// as is all that follows "--": it belongs to the command.
func splitArgs(fs *pflag.FlagSet, args []string) (parsedArgs, error) {
	s := argSplitter{fs: fs, rest: args}
	for len(s.rest) > 0 {
		word := s.next()
		var err error
		switch {
		case word == "--":
			s.out.command = append([]string{}, s.rest...)
			s.rest = nil
		case word == "-" || !strings.HasPrefix(word, "-"):
			err = s.word(word)
		case strings.HasPrefix(word, "--"):
			err = s.long(word)
		default:
			err = s.short(word)
		}
		if err != nil {
			return parsedArgs{}, err
		}
	}
	return s.out, nil
}

type argSplitter struct {
	fs   *pflag.FlagSet
	rest []string // not yet read
	out  parsedArgs
}

func (s *argSplitter) next() string {
	word := s.rest[0]
	s.rest = s.rest[1:]
	return word
}

// subcommands are the words that may stand in the place of what to do.
var subcommands = map[string]bool{"dump": true, "replay": true, "diff": true, "agent": true, "top": true}

// topics are what help can print besides the help: the manual page, and completions of shells.
var topics = map[string]bool{"man": true, "bash": true, "zsh": true, "fish": true}

// wants is how many files follow them.
var wants = map[string]int{"replay": 1, "diff": 2}

// word takes a word that is no flag: a subcommand, or its file.
func (s *argSplitter) word(w string) error {
	switch {
	case s.out.sub == "" && subcommands[w]:
		s.out.sub = w
		return nil
	case len(s.out.files) < wants[s.out.sub] && w != "":
		s.out.files = append(s.out.files, w)
		return nil
	}
	if s.out.sub == "" {
		switch w {
		case "help":
			s.out.flags = append(s.out.flags, "--help")
			if len(s.rest) == 1 && topics[s.rest[0]] {
				s.out.topic = s.next()
			} else if len(s.rest) > 0 && !strings.HasPrefix(s.rest[0], "-") && !subcommands[s.rest[0]] {
				return fmt.Errorf("help knows nothing of %q (try: sfsample help, or help man, bash, zsh, fish)", s.rest[0])
			}
			return nil
		case "record":
			return errors.New("record is a flag (try: sfsample -p PID --record FILE, or sfsample -p PID -o flame.html for a picture at once)")
		}
	}
	how := "sfsample"
	if s.out.sub != "" {
		how += " " + s.out.sub
	}
	if isPIDs(w) && wants[s.out.sub] == 0 {
		return fmt.Errorf("unexpected %q (a process is given with -p: %s -p %s)", w, how, w)
	}
	if s.out.sub != "" {
		return fmt.Errorf("unexpected %q (try: sfsample --help)", w)
	}
	return fmt.Errorf("unexpected %q (a command follows --: sfsample [flags] -- %s)", w, strings.Join(append([]string{w}, s.rest...), " "))
}

// isPIDs reports whether w is digits and commas.
func isPIDs(w string) bool {
	return w != "" && strings.Trim(w, "0123456789,") == ""
}

// long takes "--name" or "--name=value".
func (s *argSplitter) long(word string) error {
	name, value, given := strings.Cut(word[2:], "=")
	f := s.fs.Lookup(name)
	if f == nil {
		return s.unknown(word, name, value)
	}
	return s.flag("--"+name, f, value, given)
}

// short takes a word with a single dash.
func (s *argSplitter) short(word string) error {
	name, value, given := strings.Cut(word[1:], "=")
	if name == "hz" {
		return s.flag("-hz", s.fs.Lookup("hz"), value, given)
	}
	if name == "" || s.fs.Lookup(name) != nil && len(name) > 1 {
		return s.unknown(word, name, value)
	}
	f := s.letter(name[0])
	switch {
	case f == nil:
		return s.unknown(word, name, value)
	case len(name) == 1:
		return s.flag(word[:2], f, value, given)
	case takesValue(f) && attachable(f, word[2:]):
		return s.flag(word[:2], f, word[2:], true)
	case !given && s.switches(name):
		for i := range name {
			s.out.flags = append(s.out.flags, "--"+s.letter(name[i]).Name)
		}
		return nil
	}
	return s.unknown(word, name, value)
}

func (s *argSplitter) letter(c byte) *pflag.Flag {
	if c >= 0x80 { // pflag panics
		return nil
	}
	return s.fs.ShorthandLookup(string(rune(c)))
}

// switches reports whether letters are short flags without values (-qv).
func (s *argSplitter) switches(letters string) bool {
	for i := range len(letters) {
		if f := s.letter(letters[i]); f == nil || takesValue(f) {
			return false
		}
	}
	return true
}

func takesValue(f *pflag.Flag) bool { return f.NoOptDefVal == "" }

// takesSeveral reports whether values of f add up; otherwise the last one holds.
func takesSeveral(f *pflag.Flag) bool {
	_, own := f.Value.(each)
	_, slice := f.Value.(pflag.SliceValue)
	return own || slice
}

// attachable reports whether text directly after the letter of f can only be
// its value: no word begins so.
func attachable(f *pflag.Flag, text string) bool {
	if f.Name == "output" {
		return strings.ContainsAny(text[:1], "/.-")
	}
	return strings.ContainsAny(text[:1], "0123456789.")
}

// flag adds f, which the user wrote as spelled, with the value given after '='
// or, where it needs one, the next word.
func (s *argSplitter) flag(spelled string, f *pflag.Flag, value string, given bool) error {
	if !takesValue(f) {
		if !given {
			s.out.flags = append(s.out.flags, "--"+f.Name)
			return nil
		}
		s.out.flags = append(s.out.flags, "--"+f.Name+"="+value)
		return nil
	}
	if !given {
		if len(s.rest) == 0 {
			return fmt.Errorf("%s needs a value (%s)", spelled, example(f))
		}
		if next := s.rest[0]; looksLikeFlag(next) {
			return fmt.Errorf("%s needs a value, but %s follows (%s)", spelled, next, example(f))
		}
		value = s.next()
	}
	if value == "" {
		return fmt.Errorf("%s needs a value (%s)", spelled, example(f))
	}
	s.out.flags = append(s.out.flags, "--"+f.Name+"="+value)
	return nil
}

// looksLikeFlag reports whether a value is rather the next flag, and the value
// was forgotten. "-" is standard output, and "-1" a number (a wrong one).
func looksLikeFlag(value string) bool {
	return len(value) > 1 && value[0] == '-' && !strings.ContainsAny(value[1:2], "0123456789.")
}

// example shows a flag in use, from its usage text: what stands in back quotes.
func example(f *pflag.Flag) string {
	name, _ := pflag.UnquoteUsage(f)
	if f.Name == "output" {
		return "try: " + spell(f.Name) + " " + name + ", - for standard output; a file that begins with - is written ./-x"
	}
	return "try: " + spell(f.Name) + " " + name
}

// spell is how a flag is best written.
func spell(name string) string {
	switch name {
	case "hz":
		return "-hz"
	case "pid", "tid", "output", "duration":
		return "-" + name[:1]
	}
	return "--" + name
}

// unknown is the error for a word that is no flag; it shows the spelling of the
// flag that was probably meant.
func (s *argSplitter) unknown(word, name, value string) error {
	meant, attached := s.guess(name)
	if meant == nil {
		if f := s.firstLetter(word); f != nil {
			return fmt.Errorf("unknown flag %s (write -%s %s)", word, f.Shorthand, word[2:])
		}
		return fmt.Errorf("unknown flag %s (sfsample --help lists them)", word)
	}
	text := "--" + meant.Name
	if meant.Name == "hz" {
		text = spell(meant.Name)
	}
	if takesValue(meant) {
		switch {
		case attached != "":
			text += " " + attached
		case value != "":
			text += " " + value
		case len(s.rest) > 0 && !looksLikeFlag(s.rest[0]):
			text += " " + s.rest[0]
		}
	}
	return fmt.Errorf("unknown flag %s (write %s)", word, text)
}

// firstLetter returns the short flag that word begins with, if it takes a value
// that may be meant by the rest.
func (s *argSplitter) firstLetter(word string) *pflag.Flag {
	if strings.HasPrefix(word, "--") || len(word) < 3 {
		return nil
	}
	if f := s.letter(word[1]); f != nil && takesValue(f) && word[2] != '=' {
		return f
	}
	return nil
}

// guess returns the long flag that name was meant to be, nil if there is none
// or more than one: by case, by a number that follows it directly (then
// attached is that number), by its beginning, or by one or two letters.
func (s *argSplitter) guess(name string) (f *pflag.Flag, attached string) {
	lower := strings.ToLower(name)
	if f := s.fs.Lookup(lower); f != nil {
		return f, ""
	}
	if i := strings.IndexAny(lower, "0123456789"); i > 0 {
		if f := s.fs.Lookup(lower[:i]); f != nil {
			return f, name[i:]
		}
	}
	if len(lower) < 2 {
		return nil, ""
	}
	var near []*pflag.Flag
	best := 1 + min(2, len(lower)/3)
	s.fs.VisitAll(func(f *pflag.Flag) {
		d := distance(lower, f.Name)
		if len(lower) >= 3 && strings.HasPrefix(f.Name, lower) {
			d = 0
		}
		if d < best {
			best, near = d, near[:0]
		}
		if d == best && d < 1+min(2, len(lower)/3) {
			near = append(near, f)
		}
	})
	if len(near) != 1 {
		return nil, ""
	}
	return near[0], ""
}

// distance is the number of letters to insert, delete or replace to make b of a
// (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
