// Package capsule reads capsules: a manifest that says what a WebAssembly program asks for, and the module itself.
//
// It owns the grammar of murmur.yaml and the rules of what may be packed. It reads files and never writes any, keeps
// nothing between calls, and so has nothing to lose in a crash. It never grants anything: a Manifest is what a capsule
// asks, and a runtime decides what it gets. It is strict on purpose. A key it does not know, a key given twice, a list
// that grants nothing, or a feature this version does not have is an error with its place in the file, so that nothing
// is granted or dropped in silence.
package capsule
