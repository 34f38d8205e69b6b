//go:build !wasip1

package fsys

// Mounts returns nothing where the whole file system can be seen.
func Mounts() []string { return nil }
