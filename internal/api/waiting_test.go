package api_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/api/apitest"
)

// TestNoBodyOfStrangersIsWaitedFor: on every route, a request without a token is answered
// although its body never comes.
func TestNoBodyOfStrangersIsWaitedFor(t *testing.T) {
	s := apitest.New(t)
	param := regexp.MustCompile(`\{[^}]*\}`)
	n := 0
	for _, route := range s.API.Routes() {
		method, path, ok := strings.Cut(route.Pattern, " ")
		if !ok || method == http.MethodGet || route.Needs == "public" {
			continue
		}
		n++
		for _, head := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
			c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(time.Minute)) // an answer that waits for the body never comes
			fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n\r\n", method, param.ReplaceAllString(path, "x"), head)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s with %s: %v, %v; want 401", route.Pattern, head, resp, err)
			}
			c.Close()
		}
	}
	if n < 50 {
		t.Errorf("only %d routes were tried", n)
	}
}
