package api_test

import (
	"net/http"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestListsCheckTheirPage asks every list of the API for pages that do not exist.
func TestListsCheckTheirPage(t *testing.T) {
	s := apitest.New(t)
	withDesktop(t, s, "s")
	s.Want(201, "POST", "/v1/sandboxes/s/snapshots", map[string]any{"name": "n"})
	s.Want(200, "PUT", "/v1/sandboxes/s/files?path=/d/f&parents=true", strings.NewReader(""))
	var me wire.Whoami
	s.Want(200, "GET", "/v1/whoami", nil).Into(t, &me)
	names := strings.NewReplacer("{sandbox}", "s", "{snapshot}", "n", "{workspace}", me.WorkspaceID, "{webhook}", makeWebhook(s, "https://a.example").ID)
	lists := 0
	document, err := api.Document()
	if err != nil {
		t.Fatal(err)
	}
	var described struct {
		Paths map[string]struct {
			Get struct {
				Responses map[string]struct {
					Content map[string]struct {
						Schema struct {
							Ref string `yaml:"$ref"`
						}
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(document, &described); err != nil {
		t.Fatal(err)
	}
	for path, item := range described.Paths {
		if !strings.HasSuffix(item.Get.Responses["200"].Content["application/json"].Schema.Ref, "Page") {
			continue
		}
		lists++
		url := names.Replace(path) + "?"
		if strings.HasSuffix(path, "/files/list") {
			url += "path=/d&"
		}
		var page struct {
			Items      []any   `json:"items"`
			NextCursor *string `json:"next_cursor"`
		}
		if s.Want(http.StatusOK, "GET", url+"limit=1000", nil).Into(t, &page); page.Items == nil || page.NextCursor != nil && !strings.HasSuffix(path, "{snapshot}/files") { // whose stand-in always has more
			t.Errorf("%s: %d items and next cursor %v, want a list and no cursor", url, len(page.Items), page.NextCursor)
		}
		for query, field := range map[string]string{"cursor=rubbish": "cursor", "cursor=WyJ4IiwieCJd": "cursor", "limit=0": "limit", "limit=1001": "limit"} {
			p := problem(t, s.Want(http.StatusUnprocessableEntity, "GET", url+query, nil))
			if p.Code != sandbox.Invalid || len(p.Errors) != 1 || p.Errors[0].Location != field {
				t.Errorf("%s%s: %+v, want invalid %s", url, query, p, field)
			}
		}
	}
	if lists < 20 {
		t.Errorf("%d lists were found, want 20 at least", lists)
	}
}

// TestListsInMemoryGoOnAtTheirCursor walks a list that is small by nature, by pages of one.
func TestListsInMemoryGoOnAtTheirCursor(t *testing.T) {
	s := apitest.New(t)
	want := []string{"c", "b", "a"}
	for _, description := range []string{"a", "b", "c"} {
		s.Want(201, "POST", "/v1/tokens", map[string]any{"description": description})
	}
	var got []string
	for query := "limit=1"; ; {
		var list wire.Page[wire.Token]
		s.Want(200, "GET", "/v1/tokens?"+query, nil).Into(t, &list)
		for _, token := range list.Items {
			got = append(got, token.Description)
		}
		if list.NextCursor == nil {
			break
		}
		query = "limit=1&cursor=" + *list.NextCursor
	}
	if len(got) < 3 || strings.Join(got[:3], "") != strings.Join(want, "") {
		t.Errorf("tokens by pages of one: %q, want %q first", got, want)
	}
}
