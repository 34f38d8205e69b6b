package wasmhost

import (
	"errors"

	"github.com/tetratelabs/wazero/experimental/sys"
	"golang.org/x/sys/unix"
)

// The WASI preview 1 error numbers used here.
const (
	errnoSuccess    = 0
	errnoBadf       = 8
	errnoBusy       = 10
	errnoDquot      = 19
	errnoFault      = 21
	errnoFbig       = 22
	errnoInval      = 28
	errnoIO         = 29
	errnoMfile      = 33
	errnoMlink      = 34
	errnoNodev      = 43
	errnoNomem      = 48
	errnoNospc      = 51
	errnoNosys      = 52
	errnoNotsup     = 58
	errnoNotty      = 59
	errnoNxio       = 60
	errnoOverflow   = 61
	errnoSpipe      = 70
	errnoTxtbsy     = 74
	errnoXdev       = 75
	errnoNotcapable = 76
)

// errnos translates the kernel's errors for the runtime, whose own list is short. An error that is not on it is
// reported as EIO and remembered here, and the host call that caused it puts the exact number in its place.
type errnos struct {
	exact uint32 // a WASI number, or zero
}

func (e *errnos) of(err error) sys.Errno {
	var n unix.Errno
	if err == nil {
		return 0
	}
	if e, ok := err.(passed); ok {
		return sys.Errno(e)
	}
	if !errors.As(err, &n) {
		return sys.EIO
	}
	if exact := exactErrno(n); exact != 0 {
		return e.report(exact)
	}
	return sys.UnwrapOSError(n)
}

// report makes a WASI number that the runtime has no name for the outcome of the current call.
func (e *errnos) report(exact uint32) sys.Errno {
	e.exact = exact
	return sys.EIO
}

func exactErrno(n unix.Errno) uint32 {
	switch n {
	case unix.EBUSY:
		return errnoBusy
	case unix.EDQUOT:
		return errnoDquot
	case unix.EFBIG:
		return errnoFbig
	case unix.EMFILE, unix.ENFILE:
		return errnoMfile
	case unix.EMLINK:
		return errnoMlink
	case unix.ENODEV:
		return errnoNodev
	case unix.ENOMEM:
		return errnoNomem
	case unix.ENOSPC:
		return errnoNospc
	case unix.ENXIO:
		return errnoNxio
	case unix.EOVERFLOW:
		return errnoOverflow
	case unix.ESPIPE:
		return errnoSpipe
	case unix.ETXTBSY:
		return errnoTxtbsy
	case unix.EXDEV:
		return errnoXdev
	default:
		return 0
	}
}
