//go:build race

package main

// raceEnabled: the tool, which is this program too, unwinds several times slower.
const raceEnabled = true
