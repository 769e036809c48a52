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

const workers = 16

func BenchmarkList(b *testing.B) {
	for _, sandboxes := range []int{5000, 20000} {
		b.Run(strconv.Itoa(sandboxes), func(b *testing.B) { measure(b, sandboxes) })
	}
}

func measure(b *testing.B, sandboxes int) {
	s := apitest.New(b)
	at, err := url.Parse(s.URL)
	if err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	each(sandboxes, func(n int) {
		body := map[string]any{"name": name(n), "labels": map[string]string{"team": "t" + strconv.Itoa(n%7)}, "wait_seconds": 60}
		if a := s.Do("POST", "/v1/sandboxes", body); a.Status >= 300 {
			b.Errorf("create: %d %s", a.Status, a.Body)
		}
	})
	defer each(sandboxes, func(n int) { s.Do("DELETE", "/v1/sandboxes/"+name(n), nil) })
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

func name(n int) string { return "box-" + strconv.Itoa(n) }

// each calls f with the number of each sandbox, several at a time.
func each(sandboxes int, f func(n int)) {
	numbers := make(chan int)
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for n := range numbers {
				f(n)
			}
		})
	}
	for n := range sandboxes {
		numbers <- n
	}
	close(numbers)
	working.Wait()
}
