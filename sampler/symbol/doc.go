// Package symbol gives names to addresses of one mapped file: functions,
// inlined functions, source lines.
//
// An [Object] stands for one ELF file (or an image of the vDSO in memory) and
// takes link-time addresses, so that one Object serves every process that maps
// the file. It finds, in this order, what names the file: its .symtab, a
// separate debug file (by build-id, by .gnu_debuglink with its CRC, in the cache
// folder of debuginfod, over the network if asked to), MiniDebugInfo
// (.gnu_debugdata), .dynsym, Go's pclntab, and procedure linkage tables.
// [PerfMap] reads the maps that JIT compilers write. What has no name here is named by package sampler.
//
// Nothing is read before the first look-up, and then only what that look-up
// needs: symbol tables become sorted arrays without a string for each symbol,
// DWARF is read one compilation unit at a time.
//
// Everything here comes from the target or from files of it and may be hostile:
// sizes are checked against the file before they are used, nothing is mapped
// into memory (a file that shrinks under a mapping would end us with SIGBUS),
// names are bounded in length. Names are handed out as they are, control
// characters included: writers escape them. [Demangle] makes those of C++ and Rust readable.
//
// The package does not know of processes or mappings, it does no ptrace.
// Objects, perf maps and name caches may be used by any number of goroutines.
//
// Documents: System V gABI chapters 4 and 5 (symbol tables, hash tables,
// compressed sections); Linux Standard Base and GNU gABI notes (build-id,
// STT_GNU_IFUNC); GDB manual, "Separate Debug Files" and "MiniDebugInfo"; DWARF
// 5; Go's runtime/symtab.go and cmd/link pclntab; the kernel's
// tools/perf/Documentation/jit-interface.txt; debuginfod(8) for its cache.
package symbol
