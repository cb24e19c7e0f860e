package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// manPage is sfsample(1), made from the help text: its paragraphs become sections, its lines of flags their
// descriptions.
func manPage() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH SFSAMPLE 1 \"\" %q\n.SH NAME\nsfsample \\- sample the stacks of live Linux processes\n", roff(strings.TrimSpace(versionText())))
	for line := range strings.Lines(help()) {
		line = strings.TrimSuffix(line, "\n")
		text := strings.TrimSpace(line)
		flag, about, _ := strings.Cut(text, "  ")
		switch {
		case text == "":
		case strings.HasPrefix(line, "sfsample samples "):
			fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", roff(text))
		case line == "Usage:":
			b.WriteString(".SH SYNOPSIS\n.nf\n")
		case !strings.HasPrefix(line, " ") && strings.HasSuffix(line, ":"):
			fmt.Fprintf(&b, ".fi\n.SH %s\n", strings.ToUpper(roff(strings.TrimSuffix(text, ":"))))
		case strings.HasPrefix(line, "  sfsample "):
			fmt.Fprintf(&b, "%s\n", roff(flag))
		case strings.HasPrefix(text, "-"):
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(flag), roff(strings.TrimSpace(about)))
		case strings.HasPrefix(line, "Standard output"):
			fmt.Fprintf(&b, ".SH NOTES\n%s\n", roff(text))
		case strings.HasPrefix(line, "Exit status"):
			fmt.Fprintf(&b, ".SH EXIT STATUS\n%s\n", roff(text))
		case strings.HasPrefix(line, "            "):
			fmt.Fprintf(&b, ".br\n%s\n", roff(strings.Join(strings.Fields(text), " ")))
		default:
			fmt.Fprintf(&b, "%s\n", roff(text))
		}
	}
	return b.String()
}

// roff quotes what groff(7) would take for its own.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// completion is the text that has a shell (bash, zsh or fish) complete our flags and, where
// these are words, their values.
func completion(shell string) string {
	var b strings.Builder
	var names, cases []string
	newFlags(new(config)).VisitAll(func(f *pflag.Flag) {
		value, _ := pflag.UnquoteUsage(f)
		words := ""
		if strings.Contains(value, "|") {
			words = strings.ReplaceAll(value, "|", " ")
		}
		names = append(names, "--"+f.Name)
		if words != "" {
			cases = append(cases, fmt.Sprintf("--%s) words=%q ;;", f.Name, words))
		}
		if shell == "fish" {
			line := "complete -c sfsample -l " + f.Name
			if f.Shorthand != "" {
				line += " -s " + f.Shorthand
			}
			switch {
			case words != "":
				line += fmt.Sprintf(" -x -a %q", words)
			case takesValue(f):
				line += " -r"
			}
			b.WriteString(line + "\n")
		}
	})
	if shell == "fish" {
		b.WriteString("complete -c sfsample -n __fish_use_subcommand -a 'top dump replay diff agent help'\n")
		return b.String()
	}
	if shell == "zsh" {
		b.WriteString("#compdef sfsample\nautoload -U bashcompinit && bashcompinit\n")
	}
	fmt.Fprintf(&b, `_sfsample_words() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=""
	case $prev in
	-p|--pid|-t|--tid) words=$(cd /proc && echo [0-9]*) ;;
	%s
	*) case $cur in -*) words=%q ;; *) [ "$COMP_CWORD" = 1 ] && words="top dump replay diff agent help" ;; esac ;;
	esac
	COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _sfsample_words sfsample
`, strings.Join(cases, "\n\t"), strings.Join(names, " "))
	if shell == "zsh" { // which reads the file at the first Tab, as the function that is to answer it
		b.WriteString("[ \"${funcstack[1]}\" != _sfsample ] || _bash_complete -o default -F _sfsample_words\n")
	}
	return b.String()
}
