package sandbox

import (
	"context"
	"errors"
	"io"
	"iter"
	"unicode/utf8"
)

// OutputChunk is a part of the output of a command: whole characters, with U+FFFD for each byte that is not UTF-8.
type OutputChunk struct {
	Stream string // "stdout" or "stderr"
	Text   string
}

// Output yields the outputs of the command as text, from their beginning and as they come, until the command has
// ended. The order between the two is about the order in which they came. After an error, such as ctx's, there is
// nothing more. Leaving the loop has no effect on the command. After a broken connection it goes on where it was.
func (p *Process) Output(ctx context.Context) iter.Seq2[OutputChunk, error] {
	type item struct {
		chunk OutputChunk
		err   error
	}
	return func(yield func(OutputChunk, error) bool) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		streams := map[string]string{"stdout": p.stdout, "stderr": p.stderr}
		if p.stderr == p.stdout {
			delete(streams, "stderr")
		}
		items := make(chan item)
		for name, id := range streams {
			go func() {
				err := p.texts(ctx, id, func(text string) error {
					select {
					case items <- item{chunk: OutputChunk{name, text}}:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				select {
				case items <- item{err: err}: // nil: this stream has ended
				case <-ctx.Done():
				}
			}()
		}
		for left := len(streams); left > 0; {
			select {
			case i := <-items:
				switch {
				case i.err != nil:
					yield(OutputChunk{}, i.err)
					return
				case i.chunk.Text == "":
					left--
				case !yield(i.chunk, nil):
					return
				}
			case <-ctx.Done():
				yield(OutputChunk{}, ctx.Err())
				return
			}
		}
	}
}

// texts calls each with the text of a stream, in parts of whole characters that are never empty.
func (p *Process) texts(ctx context.Context, id string, each func(text string) error) error {
	r := p.reader(ctx, id)
	defer r.Close()
	buf, kept := make([]byte, 32<<10), 0
	for {
		n, err := r.Read(buf[kept:])
		have := buf[:kept+n]
		whole := len(have)
		if err == nil {
			whole -= unfinished(have)
		}
		if whole > 0 {
			if err := each(string([]rune(string(have[:whole])))); err != nil {
				return err
			}
		}
		kept = copy(buf, have[whole:])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// unfinished returns how many bytes at the end of b begin a character that more bytes may complete.
func unfinished(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if last := b[len(b)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}
