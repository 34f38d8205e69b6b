//go:build !race

package guardian_test

const raceEnabled = false
