// Package archtest holds the tests of the project's structure: which package may
// know which, what a package may not do, and how large a file may grow. Each
// rule has its reason beside it; a rule that is in the way is changed there, not
// gone around.
package archtest
