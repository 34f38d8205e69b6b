// Package bench holds benchmarks of the whole: real processes, real terminals.
// Each measures its yardstick in the same run and reports the ratio to it, since
// machines differ and one machine drifts; none of them passes or fails.
package bench
