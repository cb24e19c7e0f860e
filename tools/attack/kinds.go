package main

// attack is one kind of target.
type attack struct {
	name   string
	source string   // in src
	args   []string // of the program
	// signal: the program changes what it is when it reads a line, while it is
	// sampled. A command of sfsample's own does so by itself, half-way through its
	// last argument, in seconds.
	signal bool
}

// mode is one way to use sfsample.
type mode struct {
	name    string
	flags   []string
	dump    bool // dumps in a row rather than one run
	command bool // sfsample starts the program
	eintr   bool // EINTR is what the user has asked for
}

var modes = []mode{
	{name: "sample"},
	{name: "all", flags: []string{"--threads", "all"}},
	{name: "always", flags: []string{"--stop", "always", "--threads", "all"}},
	{name: "no-restart", flags: []string{"--no-restart"}, eintr: true},
	{name: "dump", dump: true},
	{name: "command", command: true},
}

// attacks lists all kinds.
func attacks() (list []attack) {
	for _, action := range []string{"kill", "errno", "trap", "trace", "notify"} {
		for _, scope := range []string{"one", "all"} {
			for _, when := range []string{"before", "after"} {
				list = append(list, attack{
					name: "seccomp " + action + " " + scope + " " + when, source: "seccomp.c",
					args: []string{action, scope, when}, signal: when == "after",
				})
			}
		}
	}
	for _, what := range []string{"program", "library", "data"} {
		list = append(list, attack{name: "fuse " + what, source: "fuse.c", args: []string{what}})
	}
	return list
}
