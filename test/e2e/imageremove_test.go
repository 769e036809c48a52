package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// rootFile is where the server has the root filesystem of a digest.
func rootFile(s *testserver.Server, digest string) string {
	return filepath.Join(s.StateDir, "images", "images", strings.TrimPrefix(digest, "sha256:")+".erofs")
}

// has reports whether a workspace is shown an image.
func has(t *testing.T, c *client.Client, ref string) bool {
	t.Helper()
	list, err := c.Images.List().Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(list, func(img client.Image) bool { return img.Ref == ref })
}

// TestRemoveAndPruneBuiltImages: what a workspace has built loses its name, and its files
// when nothing needs them any more, and nobody else can do that.
func TestRemoveAndPruneBuiltImages(t *testing.T) {
	reg := startRegistry(t)
	s := testserver.Start(t, "--images-default-registry", reg.host)
	ref := reg.push(t, "team/app:v1", "one")
	app := mustBuild(t, s, client.ImageBuildOptions{Tag: "app:v1"}, map[string]string{"Dockerfile": "FROM " + ref + "\nUSER 0\nRUN echo built > /srv/version\n"}).image
	other := clientOf(t, s, "other")
	for _, name := range []string{"app:v1", app.ID, app.Digest} {
		if err := other.Images.Delete(t.Context(), name); !client.IsCode(err, client.NotFound) {
			t.Errorf("Delete(%s) by another workspace: %v", name, err)
		}
	}
	sb := s.MustCreate(client.CreateOptions{Image: "app:v1"})
	if _, said, code := run(t, s, "", "images", "rm", "app:v1"); code != 0 {
		t.Fatal(said)
	}
	if has(t, s.Client, "app:v1") {
		t.Error("it is listed after it was removed")
	}
	if out, said, code := run(t, s, "", "run", "app:v1", "true"); code == 0 {
		t.Errorf("run of a removed image = %q, %q", out, said)
	}
	prune := func(args ...string) client.PrunedImages {
		t.Helper()
		out, said, code := run(t, s, "", append([]string{"images", "prune", "--json"}, args...)...)
		var got client.PrunedImages
		if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
			t.Fatalf("images prune %v = %q, %q, %d", args, out, said, code)
		}
		return got
	}
	prune()
	if got := version(t, s, sb.ID); got != "built\n" {
		t.Errorf("a sandbox of a removed image has %q", got)
	}
	if _, err := s.Client.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	prune("--all")
	if got := version(t, s, sb.ID); got != "built\n" {
		t.Errorf("a sandbox that was paused meanwhile has %q", got)
	}
	if _, err := s.Client.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := other.Images.Prune(t.Context(), client.ImagePruneOptions{}); err != nil || len(got.Images) != 0 {
		t.Errorf("another workspace pruned %+v, %v", got, err)
	}
	would := prune("--dry-run")
	if _, err := os.Stat(rootFile(s, app.Digest)); err != nil {
		t.Errorf("after a dry run: %v", err)
	}
	did := prune()
	for _, got := range []client.PrunedImages{would, did} {
		if len(got.Images) != 1 || got.Images[0].Digest != app.Digest || got.Images[0].Ref != "app:v1" || got.FreedBytes <= 0 || got.FreedBytes >= app.SizeBytes {
			t.Errorf("pruned is %+v, want app:v1 without the %d bytes that its last layer in the build cache shares", got, app.SizeBytes)
		}
	}
	if _, err := os.Stat(rootFile(s, app.Digest)); !os.IsNotExist(err) {
		t.Errorf("its file, after it was pruned: %v", err)
	}
}

// clientOf is a client of a workspace made anew.
func clientOf(t *testing.T, s *testserver.Server, name string) *client.Client {
	t.Helper()
	ws, err := s.Workspaces.Create(t.Context(), client.WorkspaceOptions{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(s.URL, s.Token, client.WithWorkspace(ws.ID))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRemovePulledImages: an image that two workspaces have by signing in each of them
// gives up for itself, and one for all an administrator removes for all.
func TestRemovePulledImages(t *testing.T) {
	reg := startRegistry(t)
	s := testserver.Start(t)
	ref := reg.push(t, "team/app:v1", "one")
	other := clientOf(t, s, "other")
	reg.on(basicAuth)
	for _, c := range []*client.Client{s.Client, other} {
		name, user, password := "ours", "ann", registryPassword
		if _, err := c.Registries.Create(t.Context(), client.RegistryFields{Name: &name, Server: &reg.host, Username: &user, Password: &password}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Images.Pull(t.Context(), ref, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Images.Delete(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if has(t, s.Client, ref) || !has(t, other, ref) {
		t.Errorf("after one gave it up it has it: %v, and the other: %v", has(t, s.Client, ref), has(t, other, ref))
	}
	if err := s.Images.Delete(t.Context(), ref); !client.IsCode(err, client.NotFound) {
		t.Errorf("giving it up again: %v", err)
	}
	sb, err := other.Sandboxes.Create(t.Context(), client.CreateOptions{Image: ref})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Sandboxes.Wait(t.Context(), sb.ID, "running"); err != nil {
		t.Fatal(err)
	}
	if res, err := other.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"cat", "/srv/version"}}); err != nil || string(res.Stdout) != "one" {
		t.Errorf("in a sandbox of who has it: %+v, %v", res, err)
	}
	if _, err := other.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	reg.on(nil)
	public := reg.push(t, "team/public:v1", "two")
	img, err := s.Images.Pull(t.Context(), public, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Images.Delete(t.Context(), img.ID); err != nil {
		t.Fatal(err)
	}
	if has(t, other, public) {
		t.Error("what an administrator removed is there for others")
	}
	pruned, err := s.Images.Prune(t.Context(), client.ImagePruneOptions{All: true})
	if err != nil || !slices.ContainsFunc(pruned.Images, func(p client.PrunedImage) bool { return p.Digest == img.Digest && p.Ref == public }) {
		t.Errorf("Prune = %+v, %v, want %s among them", pruned, err, public)
	}
	if out, said, code := run(t, s, "", "run", public, "--", "cat", "/srv/version"); out != "two" || code != 0 {
		t.Errorf("run of it, pulled again = %q, %q, %d", out, said, code)
	}
}

// TestKilledWhilePruning: after a kill at any time the next server has its images, and prunes the
// rest.
func TestKilledWhilePruning(t *testing.T) {
	reg := startRegistry(t)
	s := testserver.Start(t)
	ref := reg.push(t, "team/app:v1", "one")
	for _, tag := range []string{"app:v1", "app:v2"} {
		b := mustBuild(t, s, client.ImageBuildOptions{Tag: tag}, map[string]string{"Dockerfile": "FROM " + ref + "\nENV TAG=" + tag + "\n"})
		if err := s.Images.Delete(t.Context(), tag); err != nil {
			t.Fatal(err)
		}
		began, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			close(began)
			_, _ = s.Images.Prune(t.Context(), client.ImagePruneOptions{All: true}) // cut off, or not
		}()
		<-began
		s.Kill()
		<-ended
		s.Launch()
		if _, err := s.Images.Prune(t.Context(), client.ImagePruneOptions{All: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(rootFile(s, b.image.Digest)); !os.IsNotExist(err) {
			t.Errorf("the file of what was pruned: %v", err)
		}
	}
	if out, said, code := run(t, s, "", "run", ref, "--", "cat", "/srv/version"); out != "one" || code != 0 {
		t.Errorf("run of what was not pruned = %q, %q, %d", out, said, code)
	}
	if code := httpStatus(t, s.URL+"/readyz"); code != http.StatusOK {
		t.Errorf("GET /readyz = %d", code)
	}
}

func httpStatus(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
