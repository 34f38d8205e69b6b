#!/bin/sh
# Shows what mur does. In a terminal: a session with the sandboxed shell, to be
# left with ctrl-\ d and joined again by the next run. Without a terminal: a
# scripted round in a directory of its own that checks every step.
set -u
cd "$(dirname "$0")/.."
mur=bin/mur

if [ -t 0 ] && [ -t 1 ]; then
	if state=$("$mur" show demo --json 2>/dev/null); then
		case $state in
		*'"state":"ended"'* | *'"state":"lost"'* | *'"state":"launch-failed"'*)
			"$mur" retire --purge demo || exit
			;;
		*) exec "$mur" attach demo ;;
		esac
	fi
	exec "$mur" start --name demo
fi

home=$(mktemp -d) || exit
export MUR_HOME="$home/state"
failed=

clean_up() {
	if [ -n "$failed" ]; then
		for name in greeting plain shell; do
			"$mur" sweep "$name" && "$mur" retire --purge "$name"
		done >/dev/null 2>&1
	fi
	rm -rf "$home"
}
trap clean_up EXIT
trap 'failed=yes; exit 130' INT TERM

wrong() {
	echo "demo: $*" >&2
	failed=yes
	exit 1
}

# step CODE COMMAND...: prints the command, runs it, prints what it said and
# checks its exit code. What it said is in $said afterwards.
step() {
	want=$1
	shift
	printf '$ mur'
	for word in "$@"; do
		case $word in
		*[!A-Za-z0-9_./=-]*) printf " '%s'" "$word" ;;
		*) printf ' %s' "$word" ;;
		esac
	done
	printf '\n'
	said=$(timeout 120 "$mur" "$@" 2>&1 </dev/null)
	code=$?
	if [ -n "$said" ]; then printf '%s\n' "$said"; fi
	if [ "$code" -ne 0 ]; then echo "(exit code $code)"; fi
	[ "$code" -eq "$want" ] || wrong "'mur $*' exited with $code, expected $want"
}

says() {
	case $said in
	*"$1"*) ;;
	*) wrong "expected to see '$1'" ;;
	esac
}

# shows SESSION TEXT: waits until the session has written the text.
shows() {
	for _ in $(seq 150); do
		if "$mur" logs "$1" 2>/dev/null </dev/null | tr -d '\r' | grep -q -- "$2"; then return; fi
		sleep 0.2
	done
	"$mur" logs "$1" </dev/null | od -c | tail -20 >&2
	wrong "session $1 did not write '$2'"
}

echo '# A sandboxed capsule, in the background; its output and status stay.'
step 0 start -d --name greeting shell -c 'echo hello from the sandbox'
step 0 wait greeting
step 0 logs greeting
says 'hello from the sandbox'

echo '# A plain program, whose exit code is told by whoever asks.'
step 0 start -d --name plain -- sh -c 'echo hello; exit 7'
step 7 wait plain
step 0 logs plain
says hello
step 0 ls
says plain

echo '# An interactive shell in the sandbox that nobody is attached to, driven by a script.'
step 0 start -d --name shell shell
shows shell '[$#>%]'
# The arithmetic is for the shell in the session.
# shellcheck disable=SC2016
step 0 send shell --enter 'echo $((6*7))'
shows shell '^42'
step 0 logs shell
says 42
step 0 send shell --enter 'exit 3'
step 3 wait shell

echo '# The final records are acknowledged and the files removed.'
for name in greeting plain shell; do
	step 0 retire --purge "$name"
done
step 0 ls
[ -z "$(ls "$MUR_HOME/sessions" 2>/dev/null)" ] || wrong 'a session was left behind'
echo '# Everything was as it should be.'
