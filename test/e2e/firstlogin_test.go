package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/test/testserver"
)

// TestFirstLogin: a server without a terminal says where the code for the first
// sign-in is, and forgets it when it was used.
func TestFirstLogin(t *testing.T) {
	s := testserver.StartSmall(t)
	path := filepath.Join(s.StateDir, "first-login")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("%s has mode %v, want 0600", path, info.Mode())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	code := strings.TrimSpace(string(data))
	if log := s.Log(); !strings.Contains(log, "code_file="+path) || strings.Contains(log, code) || strings.Contains(log, s.Token) {
		t.Errorf("the log does not say where the code is, or says what it is: %s", log)
	}
	s.Stop()
	s.Launch()
	if again, err := os.ReadFile(path); err != nil || string(again) != string(data) {
		t.Errorf("after another start the file has %q, %v; want what it had", again, err)
	}

	accept := func(code string) (int, string) {
		return ask(t, s, http.MethodPost, s.URL+"/v1/auth/accept", fmt.Sprintf(`{"code":%q,"password":"a-long-passw0rd"}`, code))
	}
	if status, answer := accept("wrong" + code); status == http.StatusOK {
		t.Errorf("a wrong code is accepted: %s", answer)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("after a wrong code: %v", err)
	}
	if status, answer := accept(code); status != http.StatusOK && status != http.StatusCreated {
		t.Fatalf("the code is refused: %d %s", status, answer)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the first sign-in the file is still there: %v", err)
	}
	if status, answer := ask(t, s, http.MethodPost, s.URL+"/v1/auth/login", `{"username":"owner","password":"a-long-passw0rd"}`); status != http.StatusOK && status != http.StatusCreated {
		t.Errorf("signing in with the password: %d %s", status, answer)
	}
}
