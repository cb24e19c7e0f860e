// Package capture holds what is copied from a target while or without stopping
// it, before anything is decoded: registers, stack bytes and what maps them to
// files. A stream of its records is all that unwinding, naming and writing
// need, so that a recorded stream can be worked on again elsewhere.
//
// The file format is versioned: a header line, then gzip-compressed records,
// each a type byte, a length and fields. Readers skip record types that they do
// not know, and what follows the fields that they know; fields that were added since
// a record was written are zero. [Writer] and [Reader] are for one goroutine each.
package capture
