package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAStolenToken checks that the token and the id of the worker that has joined are not enough to be it.
func TestAStolenToken(t *testing.T) {
	c := newControl(t)
	d := c.dialer(t, c.token)
	early := c.dialer(t, c.token) // has a certificate with the id before the worker joins
	early.id = d.id
	if err := early.join(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.once(t.Context(), echoes); err != nil {
		t.Fatalf("connect: %v", err)
	}
	<-c.attached
	joined := identity(d.id, d.key.Public())
	c.only.Store(&joined)
	thief := c.dialer(t, c.token)
	thief.id = d.id
	if err := thief.join(t.Context()); err == nil || !strings.Contains(err.Error(), "this server has the worker") {
		t.Errorf("join with the worker's id and another key: %v", err)
	}
	if err := early.once(t.Context(), echoes); err == nil {
		t.Error("a certificate with the worker's id and another key connects")
	}
	d.cert = nil // as in another process of the worker
	if err := d.once(t.Context(), echoes); err != nil {
		t.Errorf("the worker itself: %v", err)
	}
}

func TestReadJoined(t *testing.T) {
	path := filepath.Join(t.TempDir(), "joined")
	if _, found, err := ReadJoined(path); err != nil || found {
		t.Errorf("ReadJoined() without a file = %v, %v", found, err)
	}
	want := Identity{"worker-" + strings.Repeat("A", 26), strings.Repeat("0", 64)}
	for text, ok := range map[string]bool{want.ID + " " + want.Key + "\n": true, "": false, "../../x y": false} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, found, err := ReadJoined(path); ok != (err == nil) || found != ok || ok && got != want {
			t.Errorf("ReadJoined() of %q = %v, %v, %v", text, got, found, err)
		}
	}
}

func TestKey(t *testing.T) {
	dir := t.TempDir()
	first, err := OpenState(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, keyFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v, %v", keyFile, info.Mode(), err)
	}
	if again, err := OpenState(dir, ""); err != nil || !again.key.Equal(first.key) {
		t.Errorf("OpenState() again has another key, or %v", err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenState(dir, ""); err == nil || !strings.Contains(err.Error(), keyFile) {
		t.Errorf("OpenState() with a damaged key = %v, want an error with the path", err)
	}
}
