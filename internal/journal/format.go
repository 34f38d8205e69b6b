package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	magic          = "mur.log\n"
	formatVersion  = 1
	fileHeaderSize = 32
	commitHeadSize = 12
	recordHeadSize = 4
	idSize         = 8
)

type fileID [idSize]byte

func checksum(parts ...[]byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	var sum uint32
	for _, part := range parts {
		sum = crc32.Update(sum, table, part)
	}
	return sum
}

func appendFileHeader(buf []byte, id fileID, base int64) []byte {
	start := len(buf)
	buf = append(buf, magic...)
	buf = binary.BigEndian.AppendUint32(buf, formatVersion)
	buf = append(buf, id[:]...)
	buf = binary.BigEndian.AppendUint64(buf, uint64(base))
	return binary.BigEndian.AppendUint32(buf, checksum(buf[start:]))
}

// headChecksum is of the first 8 bytes of a commit's head, at that offset of
// that file.
func headChecksum(id fileID, offset int64, head []byte) uint32 {
	var place [idSize + 8]byte
	copy(place[:], id[:])
	binary.BigEndian.PutUint64(place[idSize:], uint64(offset))
	return checksum(place[:], head[:8])
}

func appendCommit(buf []byte, id fileID, offset int64, records [][]byte) ([]byte, error) {
	start, size := len(buf), 0
	for _, record := range records {
		if len(record) == 0 {
			return nil, fmt.Errorf("record is empty")
		}
		size += recordHeadSize + len(record)
		if len(record) > MaxRecord || size > maxCommit {
			return nil, ErrTooLarge
		}
	}
	buf = append(buf, make([]byte, commitHeadSize)...)
	for _, record := range records {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(record)))
		buf = append(buf, record...)
	}
	head := buf[start:]
	binary.BigEndian.PutUint32(head, uint32(size))
	binary.BigEndian.PutUint32(head[4:], checksum(head[commitHeadSize:]))
	binary.BigEndian.PutUint32(head[8:], headChecksum(id, offset, head))
	return buf, nil
}

// contents is what a journal's bytes say.
type contents struct {
	id      fileID
	base    int64
	records [][]byte
	last    int64 // where the last commit begins
	end     int64 // where the next one goes
	dirty   int64 // end of the torn commit that lies there, else end
}

// scan reads a whole journal. With an error the contents are those before the
// damage.
func scan(data []byte) (contents, error) {
	var c contents
	if err := c.fileHeader(data); err != nil {
		return c, err
	}
	c.end, c.last = fileHeaderSize, fileHeaderSize
	for {
		body, ok := commitAt(data, c.id, c.end)
		if !ok {
			return c, c.tail(data)
		}
		records, ok := splitBody(body)
		if !ok {
			return c, &CorruptError{c.end, "records do not fill their commit"}
		}
		c.records = append(c.records, records...)
		c.last = c.end
		c.end += commitHeadSize + int64(len(body))
	}
}

func (c *contents) fileHeader(data []byte) error {
	// A file gets its name only when the header is on the disk, so even an
	// empty file is damage, not a crash.
	if len(data) < fileHeaderSize {
		return &CorruptError{0, "shorter than a header"}
	}
	if string(data[:len(magic)]) != magic {
		return &CorruptError{0, "not a journal"}
	}
	rest := data[len(magic):fileHeaderSize]
	if version := binary.BigEndian.Uint32(rest); version != formatVersion {
		return &CorruptError{int64(len(magic)), fmt.Sprintf("unknown version %d", version)}
	}
	base := binary.BigEndian.Uint64(rest[4+idSize:])
	sum := binary.BigEndian.Uint32(rest[4+idSize+8:])
	if checksum(data[:fileHeaderSize-4]) != sum || base < fileHeaderSize || base > maxFile {
		return &CorruptError{0, "header damaged"}
	}
	copy(c.id[:], rest[4:])
	c.base = int64(base)
	return nil
}

// headAt returns the length of the body of the commit that begins at offset, if
// its head is sound.
func headAt(data []byte, id fileID, offset int64) (size int64, ok bool) {
	if int64(len(data))-offset < commitHeadSize {
		return 0, false
	}
	head := data[offset : offset+commitHeadSize]
	size = int64(binary.BigEndian.Uint32(head))
	if size <= recordHeadSize || size > maxCommit {
		return 0, false
	}
	return size, binary.BigEndian.Uint32(head[8:]) == headChecksum(id, offset, head)
}

func commitAt(data []byte, id fileID, offset int64) (body []byte, ok bool) {
	size, ok := headAt(data, id, offset)
	start := offset + commitHeadSize
	if !ok || int64(len(data))-start < size {
		return nil, false
	}
	body = data[start : start+size]
	return body, checksum(body) == binary.BigEndian.Uint32(data[offset+4:])
}

func splitBody(body []byte) (records [][]byte, ok bool) {
	for len(body) > 0 {
		if len(body) < recordHeadSize {
			return nil, false
		}
		size := int(binary.BigEndian.Uint32(body))
		body = body[recordHeadSize:]
		if size == 0 || size > MaxRecord || size > len(body) {
			return nil, false
		}
		records = append(records, body[:size:size])
		body = body[size:]
	}
	return records, true
}

// tail judges what follows the last good commit. Each commit was synced before
// the next one was written, so a crash can have torn only the last; of that one
// any part may be missing, also from the middle.
func (c *contents) tail(data []byte) error {
	c.dirty = c.end + int64(len(bytes.TrimRight(data[c.end:], "\x00")))
	if c.dirty-c.end > commitHeadSize+maxCommit {
		return &CorruptError{c.end, "more than one commit damaged"}
	}
	for offset := c.end + 1; offset < c.dirty; offset++ {
		if _, ok := headAt(data, c.id, offset); ok {
			return &CorruptError{c.end, fmt.Sprintf("commit damaged, and another one behind it at offset %d", offset)}
		}
	}
	return nil
}
