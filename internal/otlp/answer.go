package otlp

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// answerTextMax bounds the message of an answer, in bytes.
const answerTextMax = 256

// answer is the answer of a receiver to a batch that it took: the number of spans, points or entries that it rejected all
// the same, and its reason.
type answer struct {
	rejected int
	message  string
}

// readAnswer reads an answer: its field 1 (partial_success) has the number in field 1 and the message in field 2. The
// generated code for it exists only together with gRPC. An answer of another form says nothing.
func readAnswer(b []byte) (a answer) {
	fields(b, func(n protowire.Number, _ uint64, partial []byte) {
		if n != 1 {
			return
		}
		fields(partial, func(n protowire.Number, number uint64, text []byte) {
			switch n {
			case 1:
				a.rejected = int(min(number, math.MaxInt32))
			case 2:
				a.message = first(string(text), answerTextMax)
			}
		})
	})
	return a
}

// fields calls f with the fields of a message that are numbers, texts or messages.
func fields(b []byte, f func(n protowire.Number, number uint64, text []byte)) {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return
		}
		b = b[size:]
		var number uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			number, size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			text, size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(n, kind, b)
		}
		if size < 0 {
			return
		}
		f(n, number, text)
		b = b[size:]
	}
}
