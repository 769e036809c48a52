package secret_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
)

func open(t *testing.T, path, text string) *secret.Keys {
	t.Helper()
	k, err := secret.Open(path, text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func seal(t *testing.T, k *secret.Keys, plain, object string) secret.Sealed {
	t.Helper()
	s, err := k.Seal(plain, object)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSealedIsReadForItsObjectOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	k := open(t, path, "")
	a, b := seal(t, k, "hunter2", "a"), seal(t, k, "hunter2", "a")
	if bytes.Contains(a.Data, []byte("hunter2")) || bytes.Equal(a.Data, b.Data) {
		t.Errorf("sealed twice: %x, %x", a.Data, b.Data)
	}
	if got, err := open(t, path, "").Unseal(a, "a"); err != nil || got != "hunter2" {
		t.Errorf("Unseal = %q, %v", got, err)
	}
	if got, err := k.Unseal(a, "b"); err == nil {
		t.Errorf("Unseal for another object = %q", got)
	}
	a.Data[len(a.Data)-1] ^= 1
	if got, err := k.Unseal(a, "a"); err == nil {
		t.Errorf("Unseal of changed data = %q", got)
	}
	if got, err := k.Unseal(secret.Sealed{KeyID: b.KeyID, Data: b.Data[:3]}, "a"); err == nil {
		t.Errorf("Unseal of cut data = %q", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
}

func TestKeysChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	running, rotating := open(t, path, ""), open(t, path, "")
	first := seal(t, running, "one", "x")
	if err := rotating.Add(); err != nil {
		t.Fatal(err)
	}
	second := seal(t, running, "two", "x")
	if first.KeyID == second.KeyID {
		t.Error("a running server goes on with the old key")
	}
	if err := rotating.Add(); err != nil {
		t.Fatal(err)
	}
	if err := rotating.Retain(func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if got, err := running.Unseal(second, "x"); err != nil || got != "two" {
		t.Errorf("the key before the last does not decrypt: %q, %v", got, err)
	}
	if _, err := running.Unseal(first, "x"); sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), first.KeyID) {
		t.Errorf("Unseal with a key that is gone = %v", err)
	}
}

// TestAddAtTheSameTime loses no key.
func TestAddAtTheSameTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	first := seal(t, open(t, path, ""), "one", "x")
	var wg sync.WaitGroup
	for range 8 {
		k := open(t, path, "")
		wg.Go(func() {
			if err := k.Add(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if text, err := os.ReadFile(path); err != nil || strings.Count(string(text), "\n") != 9 {
		t.Errorf("%d keys, %v; want 9", strings.Count(string(text), "\n"), err)
	}
	if _, err := open(t, path, "").Unseal(first, "x"); err != nil {
		t.Error(err)
	}
}

func TestKeysOfTheEnvironment(t *testing.T) {
	const one, two = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
	s := seal(t, open(t, "", one), "x", "y")
	if got, err := open(t, "", two+","+one).Unseal(s, "y"); err != nil || got != "x" {
		t.Errorf("Unseal = %q, %v", got, err)
	}
	if err := open(t, "", one).Add(); sandbox.CodeOf(err) != sandbox.Unsupported {
		t.Errorf("Add = %v", err)
	}
	for _, bad := range []string{"short", one + ",x", ","} {
		if _, err := secret.Open("", bad); err == nil || strings.Contains(err.Error(), bad) && bad != "," {
			t.Errorf("Open(%q) = %v", bad, err)
		}
	}
}

func TestKeyFilesOthersCanReadAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	open(t, path, "")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := secret.Open(path, ""); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("Open = %v", err)
	}
}
