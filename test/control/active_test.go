package control_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/storetest"
)

// TestActiveServers measures calls at two active servers of a database, beside the same calls at a server that is alone. All servers are in this process, and share its
// cores with PostgreSQL and the clients.
func TestActiveServers(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("only PostgreSQL has several active servers; the suite postgres runs this test")
	}
	const most = 1 << 50
	limits := quota.Limits{quota.LimitSandboxes: most, quota.LimitMemory: most, quota.LimitCPU: most, quota.LimitDisk: most}
	one := active(t, []*apitest.Server{apitest.NewLimited(t, 1<<20, limits)})
	two := active(t, apitest.NewPartsLimited(t, 2, 1<<20, limits))
	for _, list := range [][]*server{one, two} {
		for _, s := range list {
			s.run(*live / len(list))
		}
	}
	fmt.Printf("\n%d live sandboxes, %d clients; p50, p99 and CPU in ms\n\n| call | servers |", *live, *clients)
	for _, c := range compared {
		fmt.Printf(" %s |", c.name)
	}
	fmt.Println("\n|---|---|---|---|---|---|")
	for range 2 { // each after the other, so that what the machine does beside shows
		measureActive("one", one, 0)
		measureActive("two, at the owner", two, 0)
		measureActive("two, at the other", two, 1)
	}
	for _, list := range [][]*server{one, two} {
		for _, s := range list {
			s.end(s.live)
		}
	}
}

// active returns the servers of a database.
func active(t *testing.T, list []*apitest.Server) (servers []*server) {
	t.Helper()
	for _, s := range list {
		servers = append(servers, &server{Server: s, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: *clients}}})
	}
	t.Cleanup(func() {
		for _, s := range servers {
			s.http.CloseIdleConnections()
		}
	})
	return servers
}

// measureActive creates, reads and deletes sandboxes at the servers in turn. Reads and deletions go to the server that is so many after the owner.
func measureActive(name string, servers []*server, after int) {
	first := servers[0]
	ids := make([]string, *calls)
	ownerOf := func(id string) int {
		for i, part := range sandbox.Parts(len(servers)) {
			if part.Has(sandbox.ID(id)) {
				return i
			}
		}
		return 0
	}
	at := func(id string) *server { return servers[(ownerOf(id)+after)%len(servers)] }
	if after == 0 {
		printSeries(name, first.each("create, until it runs", *calls, func(i int) (err error) {
			ids[i], err = servers[i%len(servers)].create()
			return err
		}))
	} else {
		first.each("create", *calls, func(i int) (err error) {
			ids[i], err = servers[i%len(servers)].create()
			return err
		})
	}
	printSeries(name, first.each("get of a live sandbox", *calls, func(i int) error {
		_, err := at(ids[i]).call(http.MethodGet, "/v1/sandboxes/"+ids[i], "")
		return err
	}))
	printSeries(name, first.each("delete", *calls, func(i int) error {
		_, err := at(ids[i]).call(http.MethodDelete, "/v1/sandboxes/"+ids[i], "")
		return err
	}))
}

func printSeries(name string, s series) {
	fmt.Printf("| %s | %s |", s.name, name)
	for _, c := range compared {
		fmt.Printf(" %.1f |", c.of(s))
	}
	fmt.Println()
}
