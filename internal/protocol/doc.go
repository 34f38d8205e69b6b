// Package protocol is the wire between a session's guardian and its clients:
// frames, strict CBOR, the messages of every operation, the one closed list of
// error codes, limits and ids.
//
// A frame is a 4-byte big-endian length and one CBOR item in core deterministic
// encoding (RFC 8949, 4.2.1) of at most [MaxFrame] bytes. Maps have text keys,
// unknown keys are ignored, and what the kernel takes as bytes (program, argv,
// env, cwd, terminal output and input) is a byte string.
//
// The package is pure but for reading and writing one frame on a stream. It
// keeps no state and never decides: what is allowed is the guardian's business.
package protocol
