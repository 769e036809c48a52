package e2e_test

import (
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestOwnNameResolves finds a sandbox's name in every place where programs look,
// also in a fork, which has another, and after a pause.
func TestOwnNameResolves(t *testing.T) {
	s := testserver.StartSmall(t)
	parent := s.MustCreate(client.CreateOptions{Image: image, Name: "box"})
	want := func(id, name string) {
		t.Helper()
		res := s.Bash(id, `hostname; cat /etc/hostname; getent hosts "$(hostname)" | awk '{ print $2 }'; getent hosts localhost | grep -c localhost; grep -c '^127.0.1.1' /etc/hosts`, time.Minute)
		if got := string(res.Stdout); got != name+"\n"+name+"\n"+name+"\n1\n1\n" {
			t.Errorf("sandbox %s: %q %q, want %q everywhere", name, got, res.Stderr, name)
		}
	}
	want(parent.ID, "box")
	if _, err := s.Sandboxes.Pause(t.Context(), parent.ID); err != nil {
		t.Fatal(err)
	}
	want(parent.ID, "box")
	children, err := s.Sandboxes.Fork(t.Context(), parent.ID, client.ForkOptions{Names: []string{"bo", "copy"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"bo", "copy"} {
		if children[i].Err != nil {
			t.Fatal(children[i].Err)
		}
		want(children[i].Sandbox.ID, name)
	}
}
