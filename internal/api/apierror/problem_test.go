package apierror_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestEveryCodeSurvivesTheWire(t *testing.T) {
	for _, code := range sandbox.Codes {
		t.Run(string(code), func(t *testing.T) {
			sent := &sandbox.Error{Code: code, Field: "resources.memory", Message: "must be less", Err: errors.New("secret reason")}
			rec := httptest.NewRecorder()
			apierror.New(sent, "req-1").Write(rec)
			if rec.Code != apierror.Status(code) {
				t.Errorf("status = %d, want %d", rec.Code, apierror.Status(code))
			}
			if code != sandbox.Internal && apierror.Status(code) == http.StatusInternalServerError {
				t.Errorf("code %s has no status of its own", code)
			}
			if strings.Contains(rec.Body.String(), "secret") {
				t.Errorf("body shows the private reason: %s", rec.Body)
			}
			var p apierror.Problem
			if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil {
				t.Fatal(err)
			}
			got := p.Err()
			if code == sandbox.Internal {
				if got.Code != sandbox.Internal || strings.Contains(got.Message, "must be less") {
					t.Errorf("Err() = %+v, want an internal error that says nothing", got)
				}
				return
			}
			want := &sandbox.Error{Code: code, Field: "resources.memory", Message: "must be less"}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("error after the wire (-want +got):\n%s", d)
			}
		})
	}
}

func TestErrorsWithoutCodeShowNothing(t *testing.T) {
	p := apierror.New(errors.New("open /var/lib/secret: denied"), "req-1")
	if p.Code != sandbox.Internal || p.Status != 500 || strings.Contains(p.Detail, "secret") {
		t.Errorf("New = %+v", p)
	}
}

func TestStatusWithoutBodyStillMeansSomething(t *testing.T) {
	for status, want := range map[int]sandbox.Code{
		400: sandbox.Invalid, 401: sandbox.Unauthenticated, 403: sandbox.Forbidden, 404: sandbox.NotFound, 405: sandbox.NotFound,
		408: sandbox.Timeout, 409: sandbox.Conflict, 410: sandbox.Ended, 413: sandbox.TooLarge, 415: sandbox.Invalid, 422: sandbox.Invalid,
		429: sandbox.QuotaExceeded, 500: sandbox.Internal, 501: sandbox.Unsupported, 502: sandbox.Unavailable, 503: sandbox.Unavailable,
		504: sandbox.Timeout, 507: sandbox.DiskFull, 418: sandbox.Internal,
	} {
		if got := apierror.CodeOf(status); got != want {
			t.Errorf("CodeOf(%d) = %s, want %s", status, got, want)
		}
	}
}

// TestErrorCatalogue keeps docs/errors.md true: every code with its status, and no other.
func TestErrorCatalogue(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[sandbox.Code]int{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([0-9]{3}) \\| .{20,} \\|$").FindAllSubmatch(doc, -1) {
		status, err := strconv.Atoi(string(m[2]))
		if err != nil {
			t.Fatal(err)
		}
		got[sandbox.Code(m[1])] = status
	}
	want := map[sandbox.Code]int{}
	for _, code := range sandbox.Codes {
		want[code] = apierror.Status(code)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("docs/errors.md differs from the code (-want +got):\n%s", d)
	}
	causes := map[sandbox.CauseCode]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (destroyed|failed) \\| .{10,} \\|$").FindAllSubmatch(doc, -1) {
		cause := sandbox.CauseCode(m[1])
		causes[cause] = true
		if string(cause.Final()) != string(m[2]) {
			t.Errorf("docs/errors.md: cause %s ends in %s, want %s", cause, m[2], cause.Final())
		}
	}
	for _, cause := range sandbox.Causes {
		if !causes[cause] {
			t.Errorf("docs/errors.md does not list the cause %s", cause)
		}
		delete(causes, cause)
	}
	for cause := range causes {
		t.Errorf("docs/errors.md lists %s, which is no cause", cause)
	}
}

// TestTroubleshooting compares the sections of docs/troubleshooting.md with the codes.
func TestTroubleshooting(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	var got []sandbox.Code
	for _, m := range regexp.MustCompile("(?m)^### `([^`]+)`\n\n.{20,}$").FindAllSubmatch(doc, -1) {
		got = append(got, sandbox.Code(m[1]))
	}
	if d := cmp.Diff(sandbox.Codes, got); d != "" {
		t.Errorf("docs/troubleshooting.md has other sections than there are codes (-want +got):\n%s", d)
	}
}
