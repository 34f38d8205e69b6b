package capsule

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes.
type Size int64

// sizeUnits are tried in order, so that a longer unit comes before one it ends with.
func sizeUnits() []struct {
	suffix string
	bytes  int64
} {
	return []struct {
		suffix string
		bytes  int64
	}{
		{"KiB", 1 << 10},
		{"MiB", 1 << 20},
		{"GiB", 1 << 30},
		{"TiB", 1 << 40},
		{"KB", 1e3},
		{"MB", 1e6},
		{"GB", 1e9},
		{"TB", 1e12},
		{"B", 1},
	}
}

// ParseSize reads a whole number of bytes with an optional unit: 4096, 512MiB, 1GB.
func ParseSize(text string) (Size, error) {
	digits, unit := strings.TrimSpace(text), int64(1)
	for _, u := range sizeUnits() {
		if rest, ok := strings.CutSuffix(digits, u.suffix); ok {
			digits, unit = strings.TrimRight(rest, " "), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || digits[0] == '+' {
		return 0, fmt.Errorf("%q is not a size like 512MiB", text)
	}
	if n > uint64(math.MaxInt64/unit) {
		return 0, fmt.Errorf("%q is more bytes than can be counted", text)
	}
	return Size(n) * Size(unit), nil
}

// String is the size in the largest binary unit that divides it.
func (s Size) String() string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if s != 0 && s%(1<<u.shift) == 0 {
			return strconv.FormatInt(int64(s>>u.shift), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}
