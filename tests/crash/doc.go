// Package crash kills guardian, owner and client at every call by which they change
// something, lets those calls fail, takes the power away, and then judges what a
// client finds.
//
// A scenario is a list of operations with fixed ids. A driver process (this test
// binary again) carries them out against the real programs and says a line after
// each answer; a line said is a promise. After the fault a client repeats the same
// operations with the same ids, twice, and then has to find:
//
//   - the target was executed once at most, and exactly once if its start was
//     answered with "running";
//   - each operation that was answered has its receipt, and is answered again with
//     the same bytes;
//   - revision and generation are never behind an answer;
//   - the state is legal, and there is a final record or somebody who will write
//     one;
//   - after the retirement nothing is left: no process, no held lock;
//   - and all of it within seconds.
//
// "make test" takes a sample of the faults, "make crash" all of them. The faults that
// the tests must be able to find are put in on purpose in detect_test.go.
//
// The environment chooses: MUR_CRASH_FULL=1 everything, MUR_CRASH_SEED another
// sample, MUR_CRASH_KILLS how many random kills, MUR_CRASH_ONLY the one fault of the
// matrix that has this name, as a failure prints it.
//
// What it does not see: output that is mapped or copied by the kernel in other ways
// than splice.
package crash
