#!/bin/sh
# Runs every fuzz target of the module for the given time each, all of them also
# after a failure, and fails if one did.
set -u
time=${1:-20s}
go=${GO:-go}
cd "$(dirname "$0")/.." || exit

failed=
for file in $(grep -rlE --include='*_test.go' '^func Fuzz' . | sort); do
	dir=$(dirname "$file")
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		echo "== $dir $target"
		"$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir" || failed="$failed $dir:$target"
	done
done
if [ -n "$failed" ]; then
	echo "failed:$failed"
	exit 1
fi
