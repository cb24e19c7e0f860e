// Package ehframe compiles call frame information (.eh_frame, and .debug_frame
// of a separate debug file) to the rows of package sframe: one function at a
// time, when an address of it is asked for.
//
// A [Table] reads the section lazily through an io.ReaderAt that is addressed
// by link-time virtual address, so that a file, the memory of a live process
// and a core file all serve. It hides the index (the binary search table of
// .eh_frame_hdr, or one of its own built by one pass over the section), the
// pointer encodings, CIEs and augmentations, the instruction machine, and its
// caches, which are bounded whatever the section holds.
//
// It does not evaluate DWARF expressions: it checks their form, turns those
// that are only a register plus an offset into plain rules, and hands on the
// rest in Row.Exprs. It does not read registers or stacks, and it does not know
// about processes. Personality routines and LSDAs are skipped. Absolute pointers
// are taken as they stand: in the memory of a position-independent program whose
// section needs relocating (none of today's linkers makes one) they would be off
// by the load address, and its addresses have no rows then.
//
// A Table is used by one goroutine at a time; the rows that it hands out are
// never changed and may be shared.
//
// What is read is not trusted. A defect costs the function that has it and is
// reported as *sframe.FormatError; only what no function can do without (the
// header's address of the section, an unusable index) costs the table.
//
// Sources: DWARF 5 sections 6.4 and 7.24; Linux Standard Base Core 5.0, chapter
// 10.6 (.eh_frame, .eh_frame_hdr, pointer encodings and augmentations);
// "DWARF for the Arm 64-bit Architecture" (return address signing); the s390x
// ELF ABI supplement; and for what the texts leave open, what GCC's unwinder and
// GNU readelf do.
package ehframe
