package agentapi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
)

type direct struct{ net.Conn }

func (direct) Direct() bool { return true }

// serveDirect returns a client whose connections are direct. HTTP/2 is answered by h, and the first bytes of
// other connections by answer.
func serveDirect(t *testing.T, timeout time.Duration, h http.HandlerFunc, answer func(net.Conn)) *agentapi.Client {
	t.Helper()
	h2 := serveConns(t, h)
	dial := dialed(t, func(c net.Conn) {
		first := make([]byte, 3)
		if _, err := io.ReadFull(c, first); err != nil {
			return
		}
		if string(first) == "PRI" {
			h2(&prefixed{Conn: c, r: io.MultiReader(strings.NewReader("PRI"), c)})
			return
		}
		answer(c)
	})
	memory := agentapi.NewMemory(64 << 20)
	memory.SetAnswerTimeout(timeout)
	client := memory.NewClient(func(ctx context.Context) (net.Conn, error) {
		c, err := dial(ctx)
		return direct{c}, err
	})
	t.Cleanup(func() { client.Close() })
	return client
}

type prefixed struct {
	net.Conn
	r io.Reader
}

func (p *prefixed) Read(b []byte) (int, error) { return p.r.Read(b) }

// TestHostileDirect: what an agent does on a connection of one transfer ends that transfer, with an error, in
// bounded time and memory.
func TestHostileDirect(t *testing.T) {
	const large = 30 << 20
	content := func() io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{}), large) }
	mute := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	healthy := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"version":"x"}`) }
	forever := func(c net.Conn, s string) {
		for {
			if _, err := io.WriteString(c, s); err != nil {
				return
			}
		}
	}
	var stall chan struct{} // closed when the transfer has ended
	for name, c := range map[string]struct {
		h      http.HandlerFunc
		answer func(net.Conn)
		want   error
	}{
		"reads nothing, answers no health call": {mute, func(net.Conn) { <-stall }, agentapi.ErrUnreachable},
		"reads nothing, breaks health calls":    {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, func(net.Conn) { <-stall }, agentapi.ErrUnreachable},
		"closes at once":                        {healthy, func(net.Conn) {}, agentapi.ErrUnreachable},
		"closes in the middle":                  {healthy, func(c net.Conn) { io.CopyN(io.Discard, c, 1<<20) }, agentapi.ErrUnreachable},
		"answers garbage":                       {healthy, func(c net.Conn) { io.WriteString(c, "garbage\r\n\r\n"); io.Copy(io.Discard, c) }, agentapi.ErrBadAnswer},
		"headers without end":                   {healthy, func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\n"); forever(c, "A: b\r\n") }, agentapi.ErrBadAnswer},
		"provisional answers without end":       {healthy, func(c net.Conn) { forever(c, "HTTP/1.1 102 Processing\r\n\r\n") }, agentapi.ErrBadAnswer},
		"JSON without end":                      {healthy, func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n\""); forever(c, "aaaaaaaaaaaaaaaa") }, agentapi.ErrBadAnswer},
		"another protocol": {healthy, func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
			io.Copy(io.Discard, c)
		}, agentapi.ErrBadAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			stall = make(chan struct{})
			client := serveDirect(t, 200*time.Millisecond, c.h, c.answer)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			defer close(stall)
			_, err := client.WriteFile(ctx, "/file", content(), agentapi.WriteOptions{Size: large})
			if ctx.Err() != nil || !errors.Is(err, c.want) {
				t.Errorf("WriteFile = %v, want an error like %v", err, c.want)
			}
		})
	}
}

// TestHostileTunnels: what an agent does on the connection of a tunnel ends that tunnel, with an error.
func TestHostileTunnels(t *testing.T) {
	const upgrade = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: modbox-tunnel\r\n\r\n"
	for name, c := range map[string]struct {
		answer string
		want   error
	}{
		"ends without an end of data": {upgrade, io.ErrUnexpectedEOF},
		"ends in a header":            {upgrade + "\x12\x00", io.ErrUnexpectedEOF},
		"ends in a frame":             {upgrade + "\x12\x00\x00\x00\x02", io.ErrUnexpectedEOF},
		"sends other frames":          {upgrade + "\x11\x00\x00\x00\x01x", agentapi.ErrBadAnswer},
		"sends a frame of 4 GiB":      {upgrade + "\x12\xff\xff\xff\xff", agentapi.ErrBadAnswer},
		"sends data with the end":     {upgrade + "\x03\x00\x00\x00\x01x", agentapi.ErrBadAnswer},
		"ends properly":               {upgrade + "\x12\x00\x00\x00\x01x\x12\x00\x00\x00\x00\x03\x00\x00\x00\x00", nil},
	} {
		t.Run(name, func(t *testing.T) {
			client := serveDirect(t, time.Minute, nil, func(conn net.Conn) {
				for r := bufio.NewReader(conn); ; { // bytes that are not read would make the end a reset
					if line, err := r.ReadString('\n'); err != nil || line == "\r\n" {
						break
					}
				}
				io.WriteString(conn, c.answer)
			})
			tunnel, err := client.Tunnel(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			defer tunnel.Close()
			if got, err := io.ReadAll(tunnel); !errors.Is(err, c.want) || c.want == nil && string(got) != "x" {
				t.Errorf("ReadAll = %q, %v, want an error like %v", got, err, c.want)
			}
		})
	}
}

// TestTunnelsOfAnOlderAgent: an agent that knows no tunnels with connections of their own gets them by HTTP/2.
func TestTunnelsOfAnOlderAgent(t *testing.T) {
	alone := 0
	client := serveDirect(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("\x12\x00\x00\x00\x01x\x03\x00\x00\x00\x00"))
	}, func(c net.Conn) {
		alone++
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	})
	for range 2 {
		tunnel, err := client.Tunnel(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(tunnel); err != nil || string(got) != "x" {
			t.Errorf("ReadAll = %q, %v", got, err)
		}
		tunnel.Close()
	}
	if alone != 1 {
		t.Errorf("%d tunnels were tried alone, want the first", alone)
	}
}

// TestLargeTransfersShare: large transfers beyond the first 32 share connections.
func TestLargeTransfersShare(t *testing.T) {
	const transfers, most = 40, 32
	arrived, stall := make(chan bool, 2*transfers), make(chan struct{})
	client := serveDirect(t, 0, func(http.ResponseWriter, *http.Request) { arrived <- false; <-stall },
		func(net.Conn) { arrived <- true; <-stall })
	var calls sync.WaitGroup
	for range transfers {
		calls.Go(func() {
			content := io.LimitReader(rand.NewChaCha8([32]byte{}), agentapi.LargeTransfer)
			_, _ = client.WriteFile(t.Context(), "/file", content, agentapi.WriteOptions{Size: agentapi.LargeTransfer})
		})
	}
	own := 0
	for range transfers {
		if <-arrived {
			own++
		}
	}
	close(stall)
	calls.Wait()
	if own != most {
		t.Errorf("%d transfers have connections of their own, want %d", own, most)
	}
}

// TestSilentSource: a transfer whose connection ends does not wait for the rest of its content.
func TestSilentSource(t *testing.T) {
	client := serveDirect(t, 0, func(http.ResponseWriter, *http.Request) {}, func(c net.Conn) { io.ReadFull(c, make([]byte, 1<<10)) })
	content, more := io.Pipe()
	defer more.Close()
	go more.Write(make([]byte, agentapi.LargeTransfer*2))
	if _, err := client.WriteFile(t.Context(), "/file", content, agentapi.WriteOptions{Size: -1}); !errors.Is(err, agentapi.ErrUnreachable) {
		t.Errorf("WriteFile = %v, want ErrUnreachable", err)
	}
}

// TestStalledDirect: a transfer that its agent interrupts goes on if the agent answers health calls, also after its box stood
// still for a while, and if one of them fails. It ends if the agent answers none.
func TestStalledDirect(t *testing.T) {
	for name, alive := range map[string]bool{"alive": true, "stopped": true, "one fails": true, "dead": false} {
		t.Run(name, func(t *testing.T) {
			const timeout = 100 * time.Millisecond
			began := time.Now()
			var asked atomic.Int32
			client := serveDirect(t, timeout, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/files" {
					w.Header().Set(agentapi.LargeHeader, "true")
					return
				}
				switch {
				case name == "stopped":
					time.Sleep(time.Until(began.Add(9 * timeout)))
				case name == "one fails" && asked.Add(1) == 1:
					panic(http.ErrAbortHandler)
				case !alive:
					<-r.Context().Done()
				}
				io.WriteString(w, `{"version":"x"}`)
			}, func(c net.Conn) {
				io.WriteString(c, "HTTP/1.1 200 OK\r\nModbox-File: {}\r\nContent-Length: 2\r\n\r\na")
				if !alive {
					_, _ = io.Copy(io.Discard, c) // until the client gives up
					return
				}
				time.Sleep(20 * timeout)
				io.WriteString(c, "b")
			})
			r, _, err := client.ReadFile(t.Context(), "/file", 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			got, err := io.ReadAll(r)
			if alive && (err != nil || string(got) != "ab") || !alive && !errors.Is(err, agentapi.ErrUnreachable) {
				t.Errorf("read %q, %v", got, err)
			}
		})
	}
}
