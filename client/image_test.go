package client_test

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client"
)

func TestPullImage(t *testing.T) {
	var sent []byte
	answer := `{"type":"progress","phase":"pulling","done":1,"total":2,"message":"layers"}
{"type":"ping"}
{"type":"done","image":{"ref":"r/app:v1","digest":"sha256:1"}}
`
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		sent, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, answer)
	})
	var told []client.ImageProgress
	img, err := c.Images.Pull(t.Context(), "r/app:v1", func(p client.ImageProgress) { told = append(told, p) })
	if err != nil || img.Ref != "r/app:v1" || string(sent) != `{"image":"r/app:v1"}` {
		t.Errorf("PullImage = %+v, %v after %s", img, err, sent)
	}
	if d := cmp.Diff([]client.ImageProgress{{Phase: "pulling", Done: 1, Total: 2, Message: "layers"}}, told); d != "" {
		t.Errorf("progress (-want +got):\n%s", d)
	}
	answer = `{"type":"error","code":"forbidden","message":"no"}` + "\n"
	if _, err := c.Images.Pull(t.Context(), "x", nil); !client.IsCode(err, client.Forbidden) {
		t.Errorf("PullImage = %v, want forbidden", err)
	}
	answer = `{"type":"progress"}` + "\n"
	if _, err := c.Images.Pull(t.Context(), "x", nil); err == nil {
		t.Error("PullImage of an answer that breaks off succeeded")
	}
}

func TestRemoveAndPruneImages(t *testing.T) {
	var asked []string
	want := client.PrunedImages{}
	fill(t, &want)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		asked = append(asked, r.Method+" "+r.URL.EscapedPath()+" "+string(sent))
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_ = json.NewEncoder(w).Encode(want)
	})
	if err := c.Images.Delete(t.Context(), "r.test/team/app:v1"); err != nil {
		t.Error(err)
	}
	got, err := c.Images.Prune(t.Context(), client.ImagePruneOptions{All: true, DryRun: true})
	if err != nil || !cmp.Equal(*got, want) {
		t.Errorf("Prune = %+v, %v, want %+v", got, err, want)
	}
	calls := []string{"DELETE /v1/images/r.test%2Fteam%2Fapp:v1 ", `POST /v1/images/prune {"all":true,"dry_run":true}`}
	if d := cmp.Diff(calls, asked); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
}
