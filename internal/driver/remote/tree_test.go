package remote

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestReceiveTree checks that the receiver bounds what the other side sends, and writes into its directory only.
func TestReceiveTree(t *testing.T) {
	limits := treeLimits{holes: true}
	receive := func(t *testing.T, send func(w *bytes.Buffer)) (string, error) {
		t.Helper()
		var sent bytes.Buffer
		send(&sent)
		dir := filepath.Join(t.TempDir(), "dir")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		err := receiveTree(&sent, dir, limits, spaceOn(ballast.NewBudget(0), dir))
		if entries, rerr := os.ReadDir(filepath.Dir(dir)); rerr != nil || len(entries) != 1 {
			t.Errorf("beside the directory: %v, %v", entries, rerr)
		}
		return dir, err
	}
	put := func(w *bytes.Buffer, name string, size int64, content string) {
		_ = writeMessage(w, &response{File: &file{Name: name, Size: size}}) // a buffer takes all
		body := chunkWriter{w: w}
		_, _ = body.Write([]byte(content))
		_ = body.end()
	}
	end := func(w *bytes.Buffer) { _ = writeMessage(w, &response{}) }
	dir, err := receive(t, func(w *bytes.Buffer) {
		put(w, "a", 3, "abc")
		_ = writeMessage(w, &response{File: &file{Name: "hole", Size: 1 << 40, Hole: true}})
		end(w)
	})
	if content, rerr := os.ReadFile(filepath.Join(dir, "a")); err != nil || rerr != nil || string(content) != "abc" {
		t.Errorf("receiveTree() = %v, content %q, %v", err, content, rerr)
	}
	limits = treeLimits{bytes: 1 << 61}
	for name, send := range map[string]func(w *bytes.Buffer){
		"Hole":     func(w *bytes.Buffer) { _ = writeMessage(w, &response{File: &file{Name: "a", Hole: true}}); end(w) },
		"Outside":  func(w *bytes.Buffer) { put(w, "../a", 1, "a"); end(w) },
		"Parent":   func(w *bytes.Buffer) { put(w, "..", 1, "a"); end(w) },
		"Absolute": func(w *bytes.Buffer) { put(w, "/a", 1, "a"); end(w) },
		"Empty":    func(w *bytes.Buffer) { put(w, "", 1, "a"); end(w) },
		"Short":    func(w *bytes.Buffer) { put(w, "a", 2, "a"); end(w) },
		"Long":     func(w *bytes.Buffer) { put(w, "a", 1, "aa"); end(w) },
		"Negative": func(w *bytes.Buffer) { put(w, "a", -1, ""); end(w) },
		"Many": func(w *bytes.Buffer) {
			for i := range maxFiles + 1 {
				put(w, fmt.Sprint(i), 1, "a")
			}
			end(w)
		},
	} {
		if _, err := receive(t, send); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("%s: receiveTree() = %v, want unavailable", name, err)
		}
	}
	if _, err := receive(t, func(w *bytes.Buffer) { put(w, "a", 1<<60, "a") }); sandbox.CodeOf(err) != sandbox.DiskFull {
		t.Errorf("receiveTree() of more than the disk has = %v", err)
	}
	limits.bytes = 5
	if _, err := receive(t, func(w *bytes.Buffer) { put(w, "a", 3, "abc"); put(w, "b", 2, "de"); end(w) }); err != nil {
		t.Errorf("receiveTree() of as much as it may be = %v", err)
	}
	for name, send := range map[string]func(w *bytes.Buffer){
		"One file": func(w *bytes.Buffer) { put(w, "a", 6, "abcdef"); end(w) },
		"Two":      func(w *bytes.Buffer) { put(w, "a", 3, "abc"); put(w, "b", 3, "def"); end(w) },
		"Largest":  func(w *bytes.Buffer) { put(w, "a", 3, "abc"); put(w, "b", 1<<63-1, "def"); end(w) },
		"Negative": func(w *bytes.Buffer) { put(w, "a", -1<<63, ""); put(w, "b", 6, "abcdef"); end(w) },
	} {
		if _, err := receive(t, send); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("%s: receiveTree() of more than it may be = %v", name, err)
		}
	}
	if _, err := receive(t, func(w *bytes.Buffer) { put(w, "a", 1, "a"); put(w, "a", 1, "b"); end(w) }); err == nil {
		t.Error("a file is replaced by another of the same name")
	}
	if _, err := receive(t, func(w *bytes.Buffer) { put(w, "a", 1, "a") }); err == nil {
		t.Error("a tree without its end is complete")
	}
	refused := sandbox.Errorf(sandbox.Conflict, "refused")
	if _, err := receive(t, func(w *bytes.Buffer) { _ = writeMessage(w, &response{Error: encode(refused)}) }); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("receiveTree() of an error = %v", err)
	}
}
