//go:build !wasip1

package guest

func hostSize() (cols, rows, errno uint32) { return 0, 0, errnoUnsupported }

func hostSetRaw(uint32) uint32 { return errnoUnsupported }

func hostSizeChanges() uint32 { return 0 }

func hostStreams() uint32 { return 0 }
