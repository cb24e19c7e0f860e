// Package output holds the [Sample], what the tool knows of one look at one
// thread, and the writers that consume a stream of them. It knows nothing of
// processes, tables or system calls.
//
// Each writer is a [Sink] and serves one format; [Open] makes those that a
// command line names, each with its file, and feeds them from one stream.
//
// Folded, PProf, SVG and HTML hold distinct stacks, not samples (Firefox and Speedscope also a bounded
// number of samples with their times, and join those beyond), in a
// tree of call paths whose size is bounded: when it is full a new path keeps
// the part of it that is known and ends, at its leaf, in the frame
// "[more: too many distinct stacks]". So no sample is lost and no total is
// wrong, whatever the target does, and none of them holds more than about 50
// MB. Perf, JSON and Dump write samples as they come and hold none.
//
// Names come from the target and may hold any byte. No writer lets a control
// character, a line break or invalid UTF-8 through, and each one replaces what
// has a meaning of its own in its format.
//
// The same stream of samples gives the same bytes, every time.
//
// A Sink is used by one goroutine at a time; different Sinks are independent.
//
// Documents followed: the folded format as FlameGraph's flamegraph.pl reads it;
// the text of perf script as stackcollapse-perf.pl and speedscope read it;
// profile.proto of github.com/google/pprof; the processed profile format of the
// Firefox Profiler, version 62; RFC 8259 (JSON); XML 1.0.
package output
