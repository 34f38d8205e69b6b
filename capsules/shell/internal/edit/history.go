package edit

import "strings"

// Remember adds a line to a history of at most limit lines and says whether it
// did: a line that repeats the last one, is empty, or starts with a blank is
// not kept.
func Remember(history []string, line string, limit int) ([]string, bool) {
	line = strings.TrimRight(line, "\n")
	if strings.TrimSpace(line) == "" || line[0] == ' ' || len(history) > 0 && history[len(history)-1] == line {
		return history, false
	}
	history = append(history, line)
	if len(history) > limit {
		history = history[len(history)-limit:]
	}
	return history, true
}

// EncodeLine writes a line of the history as one line of a file.
func EncodeLine(line string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(line) + "\n"
}

// DecodeHistory reads what EncodeLine wrote, the newest limit lines of it. A
// last line without an end was cut off by a crash and is left out.
func DecodeHistory(data string, limit int) []string {
	var history []string
	lines := strings.Split(data, "\n")
	decode := strings.NewReplacer(`\\`, `\`, `\n`, "\n")
	for _, line := range lines[:len(lines)-1] {
		if line != "" {
			history = append(history, decode.Replace(line))
		}
	}
	return history[max(0, len(history)-limit):]
}
