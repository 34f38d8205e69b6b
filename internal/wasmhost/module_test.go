package wasmhost

import "fmt"

// tinyModule assembles a module with one page of memory and one function, _start, whose body is given.
func tinyModule(body ...byte) []byte { return tinyModuleWith(1, body...) }

func tinyModuleWith(pages byte, body ...byte) []byte {
	section := func(id byte, content ...byte) []byte { return append([]byte{id, byte(len(content))}, content...) }
	m := []byte("\x00asm\x01\x00\x00\x00")
	m = append(m, section(1, 1, 0x60, 0, 0)...)
	m = append(m, section(3, 1, 0)...)
	m = append(m, section(5, 1, 0, pages)...)
	m = append(m, section(7, append([]byte{1, 6}, append([]byte("_start"), 0, 0)...)...)...)
	code := append([]byte{0}, append(body, 0x0b)...)
	m = append(m, section(10, append([]byte{1, byte(len(code))}, code...)...)...)
	return m
}

// Bodies of _start.
func unreachable() []byte { return []byte{0x00} }
func recursion() []byte   { return []byte{0x10, 0x00, 0x10, 0x00} }
func spin() []byte        { return []byte{0x03, 0x40, 0x0c, 0x00, 0x0b} }

// growAndTrap asks for sixteen pages at a time until it is refused, and traps then.
func growAndTrap() []byte {
	return []byte{0x03, 0x40, 0x41, 0x10, 0x40, 0x00, 0x41, 0x7f, 0x47, 0x0d, 0x00, 0x0b, 0x00}
}

// importing assembles a module that imports one function and starts with nothing.
func importing(module, name string) []byte {
	section := func(id byte, content string) string { return fmt.Sprintf("%c%c%s", id, len(content), content) }
	return []byte("\x00asm\x01\x00\x00\x00" +
		section(1, "\x01\x60\x00\x00") +
		section(2, fmt.Sprintf("\x01%c%s%c%s\x00\x00", len(module), module, len(name), name)) +
		section(7, "\x01\x06_start\x00\x00"))
}
