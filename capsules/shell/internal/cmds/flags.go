package cmds

import (
	"fmt"
	"strconv"
	"strings"
)

// flags are the options of a call: a letter and its value, "" for a switch.
type flags struct {
	values map[byte][]string
	args   []string
}

func (f flags) has(letter byte) bool { return len(f.values[letter]) > 0 }

// get returns the last value of an option.
func (f flags) get(letter byte) string {
	all := f.values[letter]
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// number returns the value of an option, or what is the default.
func (f flags) number(letter byte, otherwise int) (int, error) {
	if !f.has(letter) {
		return otherwise, nil
	}
	n, err := strconv.Atoi(f.get(letter))
	if err != nil {
		return 0, fmt.Errorf("option -%c needs a number, not %q", letter, f.get(letter))
	}
	return n, nil
}

// parse reads the options of a call. In spec a letter is a switch, a letter
// with a colon takes a value. Options may follow operands, as people type
// them; "--" ends them. Long options are looked up in long, name to letter.
func (c *Call) parse(spec string, long map[string]byte) (flags, error) {
	f := flags{values: map[byte][]string{}}
	rest := c.Args[1:]
	for len(rest) > 0 {
		arg := rest[0]
		rest = rest[1:]
		switch {
		case arg == "--":
			f.args = append(f.args, rest...)
			return f, nil
		case strings.HasPrefix(arg, "--"):
			name, value, given := strings.Cut(arg[2:], "=")
			letter, ok := long[name]
			c.asked = c.asked || arg == "--help"
			if !ok {
				return f, fmt.Errorf("unknown option %s", arg)
			}
			takes := strings.Contains(spec, string(letter)+":")
			if takes && !given {
				if len(rest) == 0 {
					return f, fmt.Errorf("option %s needs a value", arg)
				}
				value, rest = rest[0], rest[1:]
			} else if given && !takes {
				return f, fmt.Errorf("option --%s takes no value", name)
			}
			f.values[letter] = append(f.values[letter], value)
		case len(arg) > 1 && arg[0] == '-':
			var err error
			if rest, err = f.cluster(spec, arg[1:], rest); err != nil {
				return f, err
			}
		default:
			f.args = append(f.args, arg)
		}
	}
	return f, nil
}

// cluster reads the letters after one dash.
func (f flags) cluster(spec, letters string, rest []string) ([]string, error) {
	for i := 0; i < len(letters); i++ {
		letter := letters[i]
		at := strings.IndexByte(spec, letter)
		if at < 0 || letter == ':' {
			return rest, fmt.Errorf("unknown option -%c", letter)
		}
		if at+1 == len(spec) || spec[at+1] != ':' {
			f.values[letter] = append(f.values[letter], "")
			continue
		}
		value := letters[i+1:]
		if value == "" {
			if len(rest) == 0 {
				return rest, fmt.Errorf("option -%c needs a value", letter)
			}
			value, rest = rest[0], rest[1:]
		}
		f.values[letter] = append(f.values[letter], value)
		return rest, nil
	}
	return rest, nil
}

// oldCount turns the historical "-5" of head and tail into "-n 5".
func (c *Call) oldCount() {
	for i, arg := range c.Args {
		if i == 0 || len(arg) < 2 || arg[0] != '-' {
			continue
		}
		if arg == "--" {
			return
		}
		if _, err := strconv.Atoi(arg[1:]); err == nil && (i == 1 || !takesValue(c.Args[i-1])) {
			args := append([]string(nil), c.Args[:i]...)
			c.Args = append(append(args, "-n", arg[1:]), c.Args[i+1:]...)
			return
		}
	}
}

func takesValue(arg string) bool { return arg == "-n" || arg == "-c" }
