package procs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// wantSeals: nobody, the maker included, can change the bytes or their number.
const wantSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// SealedMemfd makes an unnamed file in memory that holds data and can never be
// changed again. The name is only shown in /proc. It is close-on-exec.
func SealedMemfd(name string, data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make sealed memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(data)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, wantSeals)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot make sealed memory: %w", err)
	}
	return f, nil
}

// ReadSealed reads all of a sealed file of at most limit bytes, wherever its
// offset stands. ErrNotSealed: the file is no sealed memory.
func ReadSealed(f *os.File, limit int) ([]byte, error) {
	var seals int
	var st unix.Stat_t
	err := withFD(f, func(fd int) (err error) {
		if seals, err = unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil {
			return ErrNotSealed // EINVAL: a file of another kind
		}
		return unix.Fstat(fd, &st)
	})
	if err == nil && seals&wantSeals != wantSeals {
		err = ErrNotSealed
	}
	if err == nil && st.Size > int64(limit) {
		err = fmt.Errorf("it has %d bytes, more than %d", st.Size, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read sealed memory: %w", err)
	}
	data := make([]byte, st.Size)
	if _, err := f.ReadAt(data, 0); err != nil {
		return nil, fmt.Errorf("cannot read sealed memory: %w", err)
	}
	return data, nil
}
