package e2e_test

import (
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestServerOfATestEndsClean: objects that other users than the first have made are also destroyed
// at the end of a test; the test server fails it for leftovers.
func TestServerOfATestEndsClean(t *testing.T) {
	s := testserver.StartSmall(t)
	if _, err := s.Users.Create(t.Context(), client.UserOptions{Name: "ann", Password: "a-long-passw0rd"}); err != nil {
		t.Fatal(err)
	}
	signedIn, err := s.Account.Login(t.Context(), "ann", "a-long-passw0rd")
	if err != nil {
		t.Fatal(err)
	}
	sb, err := s.WithToken(signedIn.AccessToken).Sandboxes.Create(t.Context(), client.CreateOptions{Image: "modbox/base", WaitUpTo: 5 * time.Minute})
	if err != nil || sb.State != client.Running {
		t.Fatalf("create: %+v, %v", sb, err)
	}
	if page, err := s.Sandboxes.List(client.ListOptions{}).Page(t.Context(), client.PageOptions{}); err != nil || len(page.Items) != 0 {
		t.Errorf("the first user's workspace has %+v, %v; want nothing", page, err)
	}
}
