package api_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestErrorsOfABodyAreBounded: an answer names some of the inputs at fault and counts
// the others, and echoes no more of a name than some bytes.
func TestErrorsOfABodyAreBounded(t *testing.T) {
	s := apitest.New(t)
	var env []string
	for i := range 100 {
		env = append(env, fmt.Sprintf(`"A%d":%d`, i, i))
	}
	a := s.Do("POST", "/v1/sandboxes", `{"env":{`+strings.Join(env, ",")+`}}`)
	var p apierror.Problem
	a.Into(t, &p)
	if a.Status != http.StatusUnprocessableEntity || len(p.Errors) != apierror.FieldErrorsMax || p.ErrorsOmitted != 100-apierror.FieldErrorsMax {
		t.Errorf("the answer %d names %d inputs and omits %d, want 422, %d and %d", a.Status, len(p.Errors), p.ErrorsOmitted, apierror.FieldErrorsMax, 100-apierror.FieldErrorsMax)
	}
	a = s.Do("POST", "/v1/sandboxes", `{"`+strings.Repeat("x", 500_000)+`":1}`)
	if a.Status != http.StatusUnprocessableEntity || len(a.Body) > 4<<10 {
		t.Errorf("a long name is answered %d with %d bytes", a.Status, len(a.Body))
	}
}

// TestValuesOfABody: routes of huma and others refuse what decoding makes large.
func TestValuesOfABody(t *testing.T) {
	s := apitest.New(t)
	for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/none/exec", "/v1/sandboxes/none/exec/stream"} {
		for name, value := range map[string]string{"values": "[" + strings.Repeat("0,", 150_000) + "0]", "objects": strings.Repeat("[", 1000)} {
			a := s.Do("POST", path, `{"command":`+value+`}`)
			var p apierror.Problem
			a.Into(t, &p)
			if a.Status != http.StatusUnprocessableEntity || p.Code != sandbox.Invalid || !strings.Contains(p.Detail, "body: has more than") || !strings.Contains(p.Detail, name) {
				t.Errorf("POST %s with too many %s is answered %d %s", path, name, a.Status, a.Body)
			}
		}
	}
}

// TestBodyThatBreaksOff: it is no fault of ours.
func TestBodyThatBreaksOff(t *testing.T) {
	s := apitest.New(t)
	for _, route := range []string{"POST /v1/auth/login", "POST /v1/sandboxes", "POST /v1/sandboxes/none/exec/stream", "POST /sandboxes/provision"} {
		t.Run(strings.ReplaceAll(route, " ", "_"), func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", route, s.Token)
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode < 400 || resp.StatusCode >= 500 {
				t.Errorf("it is answered %s, want 4xx", resp.Status)
			}
		})
	}
	if log := s.Log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("the log has %s", log)
	}
}
