package registry_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
)

// forgetful is a store that stores nothing.
type forgetful struct{ registry.Store }

func (forgetful) CreateRegistry(context.Context, registry.Credential, int) error { return nil }

func checked(t *testing.T, signIn registry.SignIn) (create func(context.Context, sandbox.WorkspaceID) error) {
	t.Helper()
	keys, err := secret.Open(filepath.Join(t.TempDir(), "secret.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	r := registry.New(forgetful{}, keys, signIn)
	return func(ctx context.Context, ws sandbox.WorkspaceID) error {
		f := fields("hub", "registry.test:5000", "pw")
		f.Verify = true
		_, err := r.Create(ctx, ws, "user", f)
		return err
	}
}

// TestFailedChecksTellNothing checks that neither the time nor, except for a refused password, the
// message of a check reveals why it failed.
func TestFailedChecksTellNothing(t *testing.T) {
	unavailable := func(err error) error { return sandbox.Wrap(sandbox.Unavailable, err, "%v", err) }
	messages := map[string]bool{}
	for name, tc := range map[string]struct {
		after time.Duration // 0: at once; negative: when the test says so
		err   error
		code  sandbox.Code
	}{
		"closed address":  {0, unavailable(errors.New("has a private address")), sandbox.Unavailable},
		"unknown name":    {30 * time.Millisecond, unavailable(&net.DNSError{IsNotFound: true}), sandbox.Unavailable},
		"refused":         {time.Millisecond, unavailable(syscall.ECONNREFUSED), sandbox.Unavailable},
		"no answer":       {-1, nil, sandbox.Unavailable},
		"internal":        {time.Second, errors.New("something else"), sandbox.Unavailable},
		"wrong password":  {2 * time.Second, sandbox.Errorf(sandbox.Forbidden, "wrong"), sandbox.Invalid},
		"just in time":    {registry.CheckTime - 1, sandbox.Errorf(sandbox.Forbidden, "wrong"), sandbox.Invalid},
		"the one success": {time.Second, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				create := checked(t, func(ctx context.Context, _ string, _ registry.Login) error {
					if tc.after < 0 {
						<-ctx.Done()
						return ctx.Err()
					}
					time.Sleep(tc.after)
					return tc.err
				})
				begun := time.Now()
				err := create(t.Context(), "ws")
				wantCode(t, name, err, tc.code)
				want := registry.CheckTime
				if tc.code == "" {
					want = tc.after
				}
				if took := time.Since(begun); took != want {
					t.Errorf("it took %v by the fake clock, want %v", took, want)
				}
				var told *sandbox.Error // callers get its message, and not its cause
				if tc.code == sandbox.Unavailable && errors.As(err, &told) {
					messages[told.Message] = true
				}
			})
		})
	}
	if len(messages) != 1 {
		t.Errorf("the messages are %v, want one", messages)
	}
}

// TestChecksAreBounded checks that a workspace has few concurrent checks, that other workspaces are
// not affected, and that a cancelled check frees its place.
func TestChecksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		create := checked(t, func(context.Context, string, registry.Login) error { return errors.New("no") })
		ctx, goAway := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for range 2 {
			go func() { ended <- create(ctx, "ws") }()
		}
		synctest.Wait()
		wantCode(t, "a third check", create(t.Context(), "ws"), sandbox.QuotaExceeded)
		wantCode(t, "the check of another workspace", create(t.Context(), "other"), sandbox.Unavailable)
		for range 2 {
			wantCode(t, "a check", <-ended, sandbox.Unavailable)
		}
		go func() { ended <- create(ctx, "ws") }()
		synctest.Wait()
		goAway()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a check whose caller went away: %v", err)
		}
		wantCode(t, "a check afterwards", create(t.Context(), "ws"), sandbox.Unavailable)
	})
}
