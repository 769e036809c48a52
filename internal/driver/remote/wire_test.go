package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// sent returns an error as the other side sees it.
func sent(t *testing.T, err error) error {
	t.Helper()
	var b bytes.Buffer
	if err := writeMessage(&b, &response{Error: encode(err)}); err != nil {
		t.Fatal(err)
	}
	var r response
	if err := readMessage(&b, maxAnswer, &r); err != nil {
		t.Fatal(err)
	}
	return r.Error.decode()
}

func TestErrorsKeepTheirCodes(t *testing.T) {
	for _, code := range sandbox.Codes {
		want := &sandbox.Error{Code: code, Field: "resources.memory", Message: "the message", RetryAfter: time.Second, Err: errors.New("private")}
		var got *sandbox.Error
		if err := sent(t, want); !errors.As(err, &got) {
			t.Fatalf("the error %v came as %v", want, err)
		}
		if got.Code != want.Code || got.Field != want.Field || got.Message != want.Message || got.RetryAfter != want.RetryAfter || got.Err.Error() != "private" {
			t.Errorf("the error %+v came as %+v", want, got)
		}
		if err := sent(t, fmt.Errorf("around: %w", want)); sandbox.CodeOf(err) != code {
			t.Errorf("a wrapped error with code %q came with code %q", code, sandbox.CodeOf(err))
		}
	}
	for _, target := range known {
		for _, err := range []error{target, fmt.Errorf("around: %w", target), sandbox.Wrap(sandbox.Unsupported, target, "the message")} {
			got := sent(t, err)
			if !errors.Is(got, target) {
				t.Errorf("the error %q came as %q, which is another", err, got)
			}
			if sandbox.CodeOf(got) != sandbox.CodeOf(err) {
				t.Errorf("the error %q with code %q came with code %q", err, sandbox.CodeOf(err), sandbox.CodeOf(got))
			}
		}
	}
	if err := sent(t, nil); err != nil {
		t.Errorf("no error came as %v", err)
	}
	if err := sent(t, errors.New("plain")); err.Error() != "plain" || sandbox.CodeOf(err) != sandbox.Internal {
		t.Errorf("an error without code came as %v", err)
	}
	if err := (&wireError{Code: "made_up", Message: "x"}).decode(); sandbox.CodeOf(err) != sandbox.Internal {
		t.Errorf("an error with an unknown code came with %q", sandbox.CodeOf(err))
	}
	if isContext(sent(t, sandbox.Wrap(sandbox.Unavailable, context.Canceled, "x"))) || !isContext(sent(t, context.Canceled)) {
		t.Error("errors of contexts are mistaken")
	}
}

func TestMessages(t *testing.T) {
	want := request{Op: opCreate, ID: "x", Spec: &driver.Spec{ID: "x", Hostname: "h", Resources: sandbox.Resources{MemoryBytes: 1}}, Handle: driver.Handle{0, 255}}
	var b bytes.Buffer
	if err := writeMessage(&b, &want); err != nil {
		t.Fatal(err)
	}
	whole := b.String()
	var got request
	if err := readMessage(&b, maxAnswer, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the message changed:\n%s", diff)
	}
	for n := range len(whole) {
		if err := readMessage(strings.NewReader(whole[:n]), maxAnswer, &got); err == nil {
			t.Errorf("the first %d of %d bytes are a message", n, len(whole))
		}
	}
	if err := readMessage(io.MultiReader(strings.NewReader("\xff\xff\xff\xff"), neverEnding{}), maxMessage, &got); err == nil {
		t.Error("a message of 4 GiB was read")
	}
	if err := writeMessage(io.Discard, strings.Repeat("x", maxMessage)); err == nil {
		t.Error("a message beyond the limit was written")
	}
	for _, o := range []op{opWait, opStats, opList, opDiskUse} {
		b.Reset()
		if err := writeMessage(&b, &response{IDs: make([]sandbox.ID, maxAnswer/3)}); err != nil {
			t.Fatal(err)
		}
		list := o == opList || o == opDiskUse
		if err := readMessage(&b, answerLimit(o), &response{}); (err == nil) != list {
			t.Errorf("an answer of %d bytes to %s is read with %v", maxAnswer, o, err)
		}
	}
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { return len(p), nil }

func TestBodies(t *testing.T) {
	for _, size := range []int{0, 1, maxChunk, maxChunk + 1, 5*maxChunk + 7} {
		want := bytes.Repeat([]byte("x"), size)
		var b bytes.Buffer
		w := &chunkWriter{w: &b}
		if n, err := w.Write(want); err != nil || n != size {
			t.Fatalf("Write() = %d, %v", n, err)
		}
		cut := b.String()
		if err := w.end(); err != nil {
			t.Fatal(err)
		}
		b.WriteString("next")
		got, err := io.ReadAll(&chunkReader{r: &b})
		if err != nil || !bytes.Equal(got, want) || b.String() != "next" {
			t.Errorf("a body of %d bytes came as %d, %v, before %q", size, len(got), err, b.String())
		}
		if _, err := io.ReadAll(&chunkReader{r: strings.NewReader(cut)}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a body of %d bytes without its end is %v", size, err)
		}
	}
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add([]byte("\x00\x00\x00\x14{\"Error\":{\"Code\":\"\"}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r response
		if readMessage(bytes.NewReader(data), maxAnswer, &r) == nil {
			_ = r.Error.decode()
		}
		_, _ = io.ReadAll(&chunkReader{r: bytes.NewReader(data)})
	})
}
