// Package console_test measures the list of the web console with many sandboxes of the fake driver, in a
// browser of this machine:
//
//	scripts/console.sh && go test -run '^$' -bench List -benchtime 1x ./bench/console
//
// It needs what the browser tests need: Node.js, chromium, and the packages of test/browser.
package console_test

import (
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/api/apitest"
)

const (
	sandboxes = 5000
	creators  = 16
)

func BenchmarkList(b *testing.B) {
	s := apitest.New(b)
	at, err := url.Parse(s.URL)
	if err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	numbers := make(chan int)
	var creating sync.WaitGroup
	for range creators {
		creating.Go(func() {
			for n := range numbers {
				body := map[string]any{"name": "box-" + strconv.Itoa(n), "labels": map[string]string{"team": "t" + strconv.Itoa(n%7)}, "wait_seconds": 60}
				if a := s.Do("POST", "/v1/sandboxes", body); a.Status >= 300 {
					b.Errorf("create: %d %s", a.Status, a.Body)
					return
				}
			}
		})
	}
	for n := range sandboxes {
		numbers <- n
	}
	close(numbers)
	creating.Wait()
	b.Logf("%d sandboxes of the fake driver after %s", sandboxes, time.Since(begin).Round(time.Millisecond))
	for b.Loop() {
		cmd := exec.CommandContext(b.Context(), "node", "list.mjs")
		cmd.Env = append(os.Environ(), "MODBOX_URL="+s.URL, "MODBOX_API_TOKEN="+s.Token,
			"CONSOLE_URL=http://"+apitest.ConsoleHost+":"+at.Port(), "SANDBOXES="+strconv.Itoa(sandboxes))
		out, err := cmd.CombinedOutput()
		b.Logf("%s", out)
		if err != nil {
			b.Fatal(err)
		}
	}
}
