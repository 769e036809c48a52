package auth_test

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestSuccessDoesNotForgiveAnAddress guesses passwords of other accounts between successful
// sign-ins to its own.
func TestSuccessDoesNotForgiveAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the limit has a rate
		f := newFixture(t)
		c, err := auth.NewAccounts(auth.AccountsConfig{}, accountStore(f.store), f.auth, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, _, err := c.CreateUser(t.Context(), f.owner, auth.NewUser{Name: "ada", Password: "correct horse"}); err != nil {
			t.Fatal(err)
		}
		const here = "192.0.2.1:1000"
		for i := range 100 {
			if i%10 == 0 {
				if _, err := c.Login(t.Context(), "ada", "correct horse", here, auth.ForPage); sandbox.CodeOf(err) == sandbox.QuotaExceeded {
					return
				} else if err != nil {
					t.Fatal(err)
				}
			}
			_, _ = c.Login(t.Context(), fmt.Sprint("other", i), "a guess", here, auth.ForPage) // of an unknown account
		}
		t.Error("100 guesses at others' passwords, with sign-ins of one's own between them, were let through")
	})
}

// accounts returns the accounts of a fixture, with the user ada.
func accounts(t *testing.T, f *fixture) (*auth.Accounts, account.User) {
	t.Helper()
	c, err := auth.NewAccounts(auth.AccountsConfig{}, accountStore(f.store), f.auth, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ada, _, err := c.CreateUser(t.Context(), f.owner, auth.NewUser{Name: "ada", Email: "ada@example.com", Password: "correct horse"})
	if err != nil {
		t.Fatal(err)
	}
	return c, ada
}

// TestStrangersLockNobodyOut tries wrong passwords for an account, from one address and from many
// at once, before its owner signs in from elsewhere and changes the password.
func TestStrangersLockNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the limits have rates
		f := newFixture(t)
		c, ada := accounts(t, f)
		defer c.Close()
		limited := 0
		for range 25 {
			if _, err := c.Login(t.Context(), "ada", "a guess", "192.0.2.1:1000", auth.ForPage); sandbox.CodeOf(err) == sandbox.QuotaExceeded {
				limited++
			}
		}
		if limited == 0 {
			t.Error("25 wrong passwords from one address were all looked at")
		}
		var guesses sync.WaitGroup
		for i := range 60 {
			guesses.Go(func() {
				_, _ = c.Login(t.Context(), "ada", "a guess", fmt.Sprintf("198.51.100.%d:1000", i), auth.ForPage)
			})
		}
		synctest.Wait() // the guesses wait in the brake
		begun := time.Now()
		if _, err := c.Login(t.Context(), "ada", "correct horse", "203.0.113.1:1000", auth.ForPage); err != nil {
			t.Errorf("the right password from another address: %v", err)
		}
		if waited := time.Since(begun); waited > 4*time.Second {
			t.Errorf("the right password waited %v", waited)
		}
		id := auth.Identity{User: ada.ID, Address: "203.0.113.1"}
		if err := c.SetPassword(t.Context(), id, "correct horse", "battery staple"); err != nil {
			t.Errorf("change the password meanwhile: %v", err)
		}
		guesses.Wait()
	})
}

// TestLimitsTellNoAccounts compares the limits of an account that exists with the limits of an
// unknown account.
func TestLimitsTellNoAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the limits have rates
		f := newFixture(t)
		c, _ := accounts(t, f)
		defer c.Close()
		type outcome struct {
			Code   sandbox.Code
			Waited time.Duration
		}
		try := func(login string, net int) []outcome {
			outcomes := make([]outcome, 48)
			for i := range outcomes {
				begun := time.Now()
				_, err := c.Login(t.Context(), login, "a guess", fmt.Sprintf("192.0.%d.%d:1000", net, i/12), auth.ForPage)
				outcomes[i] = outcome{sandbox.CodeOf(err), time.Since(begun)}
			}
			return outcomes
		}
		known, unknown := try("ada", 2), try("bob", 3)
		if d := cmp.Diff(known, unknown); d != "" {
			t.Errorf("outcomes for a user (-) and for nobody (+):\n%s", d)
		}
		if last := known[47]; known[11].Code != sandbox.QuotaExceeded || last.Waited == 0 && known[40].Waited == 0 {
			t.Errorf("no limit was met: %v", known)
		}
	})
}
