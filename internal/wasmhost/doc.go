// Package wasmhost runs one capsule in this process.
//
// It owns the WASI preview 1 world a guest sees: its files, clocks, random bytes, environment, streams and terminal.
// A guest gets what its manifest asks for and the caller gives, and nothing else. The only descriptors of the host a
// guest can reach are the three standard streams; every file is opened below a granted directory, one name at a time,
// and no path, link, rename or race leads out of it.
//
// Guest code is native code that cannot be preempted. So the runtime's interruption checks stay off (they slow loops
// down ten times), every host call is a place where a stopped guest unwinds, waiting calls are woken at once, and a
// guest that never calls the host is abandoned: Run returns, and the caller must leave the process soon. While a guest
// runs, the garbage collector works only inside host calls, since a collection would wait for a spinning guest and
// freeze every goroutine. Run therefore owns the process: one at a time.
//
// A crash loses nothing but the run. The terminal is put back on every end of Run; a killed process leaves that to
// whoever holds the terminal. The compile cache is written whole or not at all and is checked before each use. This
// package never prints, never reads the environment, and never ends the process.
package wasmhost
