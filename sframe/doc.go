// Package sframe decodes SFrame sections, versions 1 to 3, and answers which
// row covers an address. It also holds [Row], the form to which every other
// source of unwind information is brought.
//
// A [Section] reads lazily from an io.ReaderAt, which may be the memory of a
// live process: its header when it is opened, and for a question only the table
// entries that a binary search meets and the rows of one function. What a
// section says is never believed: offsets, counts and sums are checked before
// use, memory is bounded whatever they are, and damage is confined to the row,
// the function or the table that has it, in this order. Nothing is assumed to
// be the same when it is read a second time.
//
// The package hides versions, byte orders, word sizes, how function starts are
// encoded, tables that are not sorted, and several tables in one section. It
// does not apply rows (package unwind does), knows no ELF files, and does not
// relocate the tables of object files.
//
// A Section may be used by any number of goroutines if its reader may. Answers
// already given are found again without a lock.
//
// It follows "The SFrame Format", version 3 with the errata of version 2, of GNU
// binutils 2.46, and, where that is silent or wrong, what GNU as writes and
// libsframe reads.
package sframe
