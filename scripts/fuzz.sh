#!/bin/sh
# Runs every fuzz target of the module for the given time each.
set -eu
time=${1:-20s}
go=${GO:-go}
cd "$(dirname "$0")/.."

grep -rlE --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do
	dir=$(dirname "$file")
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
		echo "== $dir $target"
		# Nothing may read what the loop reads.
		"$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir" </dev/null
	done
done
