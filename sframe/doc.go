// Package sframe decodes SFrame sections, versions 1 to 3, lazily from an
// io.ReaderAt, and answers which row covers an address. It also holds [Row],
// the form to which every other source of unwind information is brought.
package sframe
