// Package module knows which ELF object is mapped where in a process, finds the
// unwind tables of each, and answers what a walk asks about code: it implements
// unwind.Space.
//
// A [Space] stands for one process. It reads the process through a [Source]: a
// live one ([Live]) or a recorded one. Headers and tables are read from the
// memory of the process, as it runs them; the file is opened only for what is
// not in memory (section headers, symbols, Go's table of functions, and .debug_frame, which is asked
// last), as the process sees it, and only if its headers and
// build-id are those in memory.
//
// A [Cache] is shared by the Spaces of one run: objects with the same build-id,
// headers and beginnings of tables share these tables and the pages read of them, as far as they
// belong to processes of one user. (Who may write another's memory may falsify
// its tables as well; others may not.) It is bounded in bytes.
//
// Code that belongs to no object has rows where the program tells of it by GDB's
// interface for JIT compilers, as QEMU does. What it tells otherwise is noted as a [Change] at the next Verify; [Code] tells how
// often that happens.
//
// The mappings are read anew when an address is not covered, on [Space.Refresh],
// and when [Space.Verify] finds that an object is no longer what it was. A row
// never outlives its object: an object is identified by its place, device,
// inode, headers, build-id and the beginnings of its tables, and these are compared with memory each time.
//
// Everything that is read from the target may be hostile. A table that cannot
// be used is put aside once, with a record in the log and in its [Report].
//
// A Space is for one goroutine at a time. A Cache may be shared by Spaces of
// different goroutines. A [Module] never changes and may be used by any.
// Reading may block as long as a page fault of the target would.
//
// Functions without symbols are known by where they begin, by the tables ([Space.Function]) or, where these have nothing, by the code
// ([Begins]).
//
// The package does not name addresses (see sampler/symbol) and does not trace.
//
// Sources: System V gABI chapters 4 and 5; Linux Standard Base (PT_GNU_EH_FRAME);
// SFrame version 3 specification; proc_pid_maps(5), proc_pid_map_files(5).
package module
