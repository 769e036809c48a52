package auth_test

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestSuccessDoesNotForgiveAnAddress guesses at others' passwords between sign-ins of one's own.
func TestSuccessDoesNotForgiveAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the limit has a rate
		f := newFixture(t)
		c, err := auth.NewAccounts(auth.AccountsConfig{}, f.store, f.auth, nil, slog.New(slog.DiscardHandler))
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
				if _, err := c.Login(t.Context(), "ada", "correct horse", here); sandbox.CodeOf(err) == sandbox.QuotaExceeded {
					return
				} else if err != nil {
					t.Fatal(err)
				}
			}
			_, _ = c.Login(t.Context(), fmt.Sprint("other", i), "a guess", here) // nobody's
		}
		t.Error("100 guesses at others' passwords, with sign-ins of one's own between them, were let through")
	})
}
