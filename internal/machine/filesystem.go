package machine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// FileSystem is what holds a directory.
type FileSystem struct {
	Kind string
	// Volatile: nothing of it is left after a restart, whatever was synced.
	Volatile bool
	// Remote: a server, or a program, decides what a sync means.
	Remote bool
	// Free is what we may still write, in bytes.
	Free uint64
	// FreeFiles is how many files we may still make; -1: nobody counts.
	FreeFiles int64
}

// kinds are the file systems that are known by name, after statfs(2).
var kinds = map[uint32]FileSystem{
	unix.EXT4_SUPER_MAGIC:      {Kind: "ext2/ext3/ext4"},
	unix.XFS_SUPER_MAGIC:       {Kind: "xfs"},
	unix.BTRFS_SUPER_MAGIC:     {Kind: "btrfs"},
	unix.F2FS_SUPER_MAGIC:      {Kind: "f2fs"},
	unix.BCACHEFS_SUPER_MAGIC:  {Kind: "bcachefs"},
	0x2fc12fc1:                 {Kind: "zfs"},
	unix.OVERLAYFS_SUPER_MAGIC: {Kind: "overlay"},
	unix.TMPFS_MAGIC:           {Kind: "tmpfs", Volatile: true},
	unix.RAMFS_MAGIC:           {Kind: "ramfs", Volatile: true},
	unix.NFS_SUPER_MAGIC:       {Kind: "nfs", Remote: true},
	unix.CIFS_SUPER_MAGIC:      {Kind: "cifs", Remote: true},
	unix.SMB2_SUPER_MAGIC:      {Kind: "smb", Remote: true},
	unix.CEPH_SUPER_MAGIC:      {Kind: "ceph", Remote: true},
	unix.V9FS_MAGIC:            {Kind: "9p", Remote: true},
	unix.FUSE_SUPER_MAGIC:      {Kind: "fuse", Remote: true},
}

// FileSystemOf tells about the file system of a path.
func FileSystemOf(path string) (FileSystem, error) {
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	for err == unix.EINTR {
		err = unix.Statfs(path, &st)
	}
	if err != nil {
		return FileSystem{}, fmt.Errorf("cannot ask for the file system of %s: %w", path, err)
	}
	fs, known := kinds[uint32(st.Type)]
	if !known {
		fs.Kind = fmt.Sprintf("type %#x", uint32(st.Type))
	}
	unit := st.Frsize
	if unit == 0 {
		unit = st.Bsize
	}
	fs.Free = st.Bavail * uint64(unit)
	fs.FreeFiles = -1
	if st.Files > 0 { // btrfs and its like make them as needed
		fs.FreeFiles = int64(st.Ffree)
	}
	return fs, nil
}
