package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/api/wire"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestPullImage(t *testing.T) {
	s := apitest.New(t)
	a := s.Want(200, "POST", "/v1/images/pull", wire.ImagePull{Image: apitest.PullRef})
	if got := a.Header.Get("Content-Type"); got != "application/x-ndjson" {
		t.Errorf("Content-Type = %q", got)
	}
	var last wire.ImageProgress
	for sc := bufio.NewScanner(bytes.NewReader(a.Body)); sc.Scan(); {
		last = wire.ImageProgress{}
		if err := json.Unmarshal(sc.Bytes(), &last); err != nil {
			t.Fatal(err)
		}
		if last.Type == wire.PullProgress && (last.Phase != "pulling" || last.Done != 1 || last.Total != 2) {
			t.Errorf("progress = %+v", last)
		}
	}
	if last.Type != wire.PullDone || last.Image == nil || last.Image.Ref != apitest.PullRef {
		t.Errorf("the last message = %+v, want done with the image", last)
	}
	s.Want(404, "POST", "/v1/images/pull", wire.ImagePull{Image: "registry.test/none"})
	for _, bad := range []wire.ImagePull{{}, {Image: string(make([]byte, sandbox.ImageRefMax+1))}} {
		if got := string(s.Want(422, "POST", "/v1/images/pull", bad).Body); !strings.Contains(got, `"location":"image"`) {
			t.Errorf("the error %s is not about image", got)
		}
	}
}
