//go:build !amd64

package tracer

import (
	"errors"
	"runtime"
)

// Supported tells why there is no tracing here.
func Supported() error {
	return errors.New("the tracer knows the registers of amd64 only, this is " + runtime.GOARCH)
}

// Run fails.
func Run(Program, Fault) (*Result, error) { return nil, Supported() }
