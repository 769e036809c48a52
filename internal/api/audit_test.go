package api_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/api/auditlog"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

// recordsOf returns the records of a request, the oldest first.
func recordsOf(s *apitest.Server, requestID string) []audit.Record {
	s.T.Helper()
	rows, err := s.Audit.Rows(s.T.Context(), audit.Filter{Limit: 1000})
	if err != nil {
		s.T.Fatal(err)
	}
	var list []audit.Record
	for _, row := range rows.Items {
		if !bytes.Contains(row.Record, []byte(requestID)) {
			continue // decoding all records for each request would take most of the time of some tests
		}
		var r audit.Record
		if err := json.Unmarshal(row.Record, &r); err != nil {
			s.T.Fatal(err)
		}
		if r.RequestID == requestID {
			list = append([]audit.Record{r}, list...)
		}
	}
	return list
}

// TestEveryChangeIsRecorded calls all routes as the matrix test does: routes that change something
// are recorded once, whatever the outcome, and no other routes.
func TestEveryChangeIsRecorded(t *testing.T) {
	m := newMatrix(t)
	// Users take turns: only so many refusals of one user are recorded each minute.
	var members, readers []string
	for _, role := range []account.Role{account.RoleMember, account.RoleViewer} {
		members = append(members, m.token(m.members[role], auth.TokenRequest{}))
	}
	for _, role := range []account.Role{account.RoleOwner, account.RoleAdmin} {
		readers = append(readers, m.token(m.members[role], auth.TokenRequest{Scopes: []account.Permission{account.TokensRead}}))
	}
	for i, route := range m.API.Routes() {
		member, reader := members[i%2], readers[i%2]
		if strings.HasSuffix(route.Pattern, "/") {
			continue // the routes below record themselves
		}
		if !strings.HasPrefix(route.Pattern, "GET ") && route.Action == "" && !readsOnly[route.Pattern] {
			t.Errorf("%s changes something and is not recorded", route.Pattern)
		}
		t.Run(strings.NewReplacer(" ", "_", "/", ".").Replace(route.Pattern), func(t *testing.T) {
			for who, token := range map[string]string{"nobody": "", "a member": member, "a token that may not": reader} {
				rec := m.serve(m.call(route, m.own), token)
				list := recordsOf(m.Server, rec.Header().Get("X-Request-Id"))
				if route.Action == "" {
					if len(list) != 0 {
						t.Errorf("%s: recorded as %+v", who, list)
					}
					continue
				}
				if len(list) != 1 {
					t.Errorf("%s: %d records, want 1 (status %d)", who, len(list), rec.Code)
					continue
				}
				r := list[0]
				if r.Action != route.Action || r.Route != route.Pattern || r.Status != rec.Code {
					t.Errorf("%s: recorded as %s, %s, %d; want %s, %s, %d", who, r.Action, r.Route, r.Status, route.Action, route.Pattern, rec.Code)
				}
				if refused := rec.Code == http.StatusForbidden; refused && r.Outcome != string(sandbox.Forbidden) || rec.Code >= 400 && r.Outcome == audit.OK {
					t.Errorf("%s: the outcome of status %d is %s", who, rec.Code, r.Outcome)
				}
				if known := token != "" && route.Needs != auth.Public; known && (r.User == "" || r.Token == "" || r.Workspace != string(m.own)) || !known && r.User != "" {
					t.Errorf("%s: recorded as user %q with token %q in workspace %q", who, r.User, r.Token, r.Workspace)
				}
				if r.Address == "" || r.Time == "" || r.Permission != string(route.Needs) {
					t.Errorf("%s: %+v", who, r)
				}
			}
		})
	}
	document, err := api.Document()
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range m.API.Routes() {
		if route.Action != "" && !strings.Contains(string(document), "operationId: "+route.Action+"\n") {
			t.Errorf("%s is recorded as %s, which is no operation of /v1", route.Pattern, route.Action)
		}
	}
	report, err := m.Audit.Verify(t.Context())
	if err != nil || report.Problem != "" {
		t.Errorf("Verify = %+v, %v", report, err)
	}
}

// readsOnly are routes that change nothing although their method is not GET.
var readsOnly = map[string]bool{
	"POST /v1/apt-packages/validate": true, "POST /cli/validate/apt-dependencies": true, "POST /sandboxes/wait": true,
}

func TestWorkspacesSeeTheirOwnRecords(t *testing.T) {
	m := newMatrix(t)
	ask := func(path, token string) wire.Page[auditlog.AuditEntry] {
		t.Helper()
		r := m.Request("GET", path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		var list wire.Page[auditlog.AuditEntry]
		a := m.Send(r)
		if a.Status != http.StatusOK {
			t.Fatalf("GET %s: %d %s", path, a.Status, a.Body)
		}
		a.Into(t, &list)
		return list
	}
	owner := m.token(m.members[account.RoleOwner], auth.TokenRequest{})
	make := m.Request("POST", "/v1/tokens", map[string]string{"description": "x"})
	make.Header.Set("Authorization", "Bearer "+owner)
	if a := m.Send(make); a.Status != http.StatusCreated {
		t.Fatalf("make token: %d %s", a.Status, a.Body)
	}
	if a := m.Send(m.Request("POST", "/v1/tokens", map[string]string{"description": "elsewhere"})); a.Status != http.StatusCreated {
		t.Fatalf("make token: %d %s", a.Status, a.Body)
	}
	list := ask("/v1/audit?action=create-token&since=2020-01-01T00:00:00Z&object=x", owner)
	if len(list.Items) != 1 || !strings.Contains(string(list.Items[0].Record), string(m.own)) {
		t.Errorf("in the workspace: %v", list.Items)
	}
	if list := ask("/v1/audit?until=2020-01-01T00:00:00Z", owner); len(list.Items) != 0 {
		t.Errorf("before the first: %v", list.Items)
	}
	all := ask("/v1/audit/installation?order=asc&limit=1", m.Token)
	if len(all.Items) != 1 || all.NextCursor == nil || all.Items[0].Prev != strings.Repeat("00", 32) {
		t.Fatalf("a page of the installation: %+v", all)
	}
	if all := ask("/v1/audit/installation?order=asc&cursor="+*all.NextCursor, m.Token); len(all.Items) != 1 || all.Items[0].Seq != 2 || all.NextCursor != nil {
		t.Errorf("the next page: %+v", all)
	}
	if all := ask("/v1/audit/installation?workspace="+string(m.own), m.Token); len(all.Items) != 1 {
		t.Errorf("of a workspace: %+v", all)
	}
	var report wire.AuditReport
	m.Send(m.Request("GET", "/v1/audit/verify", nil)).Into(t, &report)
	if !report.OK || report.Records != 2 || report.HeadSeq != 2 {
		t.Errorf("report %+v", report)
	}
	if a := m.Send(m.Request("GET", "/v1/audit?since=yesterday", nil)); a.Status != http.StatusBadRequest && a.Status != http.StatusUnprocessableEntity || !strings.Contains(string(a.Body), "since") {
		t.Errorf("a wrong time: %d %s", a.Status, a.Body)
	}
}
