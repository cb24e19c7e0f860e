//go:build race

package sampler

// raceEnabled: all of this program takes several times as long.
const raceEnabled = true
