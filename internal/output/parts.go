package output

import (
	"encoding/binary"
	"path"
	"strings"

	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
)

// partBytes is the size of the parts of a stream, except the last.
const partBytes = object.ChunkBytes

// prefix begins the names of the objects.
const prefix = "output/"

// folder begins the names of the objects of an installation.
func folder(installation string) string { return prefix + installation + "/" }

// nameOf is the name of a stream, without the numbers of its parts. A stream has no directory of its own, which would remain in a local bucket, and a
// directory has a thousandth of the streams, because each removal lists a directory.
func nameOf(installation string, id sandbox.StreamID) string {
	return folder(installation) + string(id[len(id)-2:]) + "/" + string(id)
}

// streamOf returns the stream of an object.
func streamOf(key string) (sandbox.StreamID, bool) {
	id, _, _ := strings.Cut(path.Base(key), ".")
	return sandbox.ParseStreamID(id)
}

// head begins the first part of a stream.
type head struct{ Size, Times int64 }

// headMagic is the format.
const headMagic = "mbout001"

func (h head) total() int64 { return h.Size + h.Times }

// parts returns the number of parts, at least one.
func (h head) parts() int { return int(max(1, (h.total()+partBytes-1)/partBytes)) }

// encode returns the first part.
func (h head) encode(first []byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte(headMagic), uint64(h.Size))
	return append(binary.BigEndian.AppendUint64(b, uint64(h.Times)), first...)
}

// decode reads the first part. Errors: Invalid.
func decode(data []byte) (h head, first []byte, err error) {
	const size = len(headMagic) + 16
	if len(data) < size || string(data[:len(headMagic)]) != headMagic {
		return h, nil, sandbox.Errorf(sandbox.Invalid, "it is no stream")
	}
	h = head{int64(binary.BigEndian.Uint64(data[len(headMagic):])), int64(binary.BigEndian.Uint64(data[len(headMagic)+8:]))}
	const most = 1 << 50
	if h.Size < 0 || h.Times < 0 || h.Size > most || h.Times > most {
		return h, nil, sandbox.Errorf(sandbox.Invalid, "it has sizes of %d and %d bytes", h.Size, h.Times)
	}
	return h, data[size:], nil
}
