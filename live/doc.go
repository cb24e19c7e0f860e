// Package live is what sfsample top knows and shows, without the terminal: a
// [Model] takes samples and rounds, a [Picture] of it is made into the [Row]s of
// a table, and a [Screen], which keys change, into lines of text for its [Paper].
//
// All that comes from a target is cleaned by [output.Printable], and escaped
// where the terminal shows ASCII only: no line holds a control character, and
// none is wider than the screen.
//
// A Model may be used by several goroutines: whoever adds samples waits for
// nobody longer than it takes to copy what was counted. A Picture does not
// change. A Screen is used by one goroutine.
//
// What a Model holds is bounded: when its tables are full, new functions, stacks
// and threads share one entry each, so that no sum is wrong.
package live
