package fsys

import (
	"io"
	"io/fs"
	"time"
)

// info describes what no system file stands behind.
type info struct {
	name string
	mode fs.FileMode
}

var _ fs.FileInfo = info{}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return 0 }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return time.Unix(0, 0) }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }

// nullInfo is what /dev/null looks like.
var nullInfo = info{name: "null", mode: fs.ModeDevice | fs.ModeCharDevice | 0o666}

// nullFile takes everything and holds nothing.
type nullFile struct{}

func (nullFile) Read([]byte) (int, error)    { return 0, io.EOF }
func (nullFile) Write(p []byte) (int, error) { return len(p), nil }
func (nullFile) Close() error                { return nil }
func (nullFile) Stat() (fs.FileInfo, error)  { return nullInfo, nil }
