// Command guest is the program that package drivertest runs inside boxes: small servers, and
// programs that run into limits. It is static and needs nothing from the image.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: guest MODE [N]"))
	}
	n := int64(0)
	if len(os.Args) > 2 {
		var err error
		if n, err = strconv.ParseInt(os.Args[2], 10, 64); err != nil {
			fail(err)
		}
	}
	switch mode := os.Args[1]; mode {
	case "echo":
		serve(func(c *net.TCPConn) { io.Copy(c, c) })
	case "sink":
		serve(sink)
	case "source":
		serve(func(c *net.TCPConn) { io.CopyN(c, Source(), n) })
	case "goodbye":
		serve(goodbye)
	case "state":
		state()
	case "killinit":
		fail(killInit())
	case "fill":
		fill(n)
	case "fork":
		fork(n)
	case "eat":
		eat(n)
	case "sleep":
		fmt.Println("sleeping")
		for {
			time.Sleep(time.Hour)
		}
	default:
		fail(fmt.Errorf("no mode %q", mode))
	}
}

func fail(err error) {
	fmt.Println("error:", err)
	os.Exit(1)
}

// killInit ends PID 1 by a signal to one of its other threads: the agent refuses
// signals that name PID 1 itself.
func killInit() error {
	threads, err := os.ReadDir("/proc/1/task")
	if err != nil {
		return err
	}
	for _, thread := range threads {
		if tid, err := strconv.Atoi(thread.Name()); err == nil && tid != 1 {
			return syscall.Kill(tid, syscall.SIGKILL)
		}
	}
	return errors.New("PID 1 has only one thread")
}

// Source is an endless stream of bytes that the test can reproduce.
func Source() io.Reader { return rand.NewChaCha8([32]byte{1}) }

// serve prints its port and answers connections for ever.
func serve(answer func(*net.TCPConn)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	for {
		c, err := l.Accept()
		if err != nil {
			fail(err)
		}
		go func() {
			defer c.Close()
			answer(c.(*net.TCPConn))
		}()
	}
}

// sink answers with the checksum of the data once that has ended.
func sink(c *net.TCPConn) {
	h := sha256.New()
	n, err := io.Copy(h, c)
	if err == nil {
		fmt.Fprintf(c, "%d %s", n, hex.EncodeToString(h.Sum(nil)))
	}
}

// goodbye closes its side first, and prints what it still receives.
func goodbye(c *net.TCPConn) {
	io.WriteString(c, "goodbye")
	c.CloseWrite()
	rest, err := io.ReadAll(c)
	fmt.Printf("%s %v\n", rest, err)
}

// fill writes n bytes to a file and prints how many it could write.
func fill(n int64) {
	f, err := os.Create("filled")
	if err != nil {
		fail(err)
	}
	written, err := io.CopyN(f, Source(), n)
	fmt.Println(written, errors.Is(err, syscall.ENOSPC))
}

// fork starts n processes and prints how many it could start.
func fork(n int64) {
	started := 0
	for range n {
		cmd := exec.Command("/proc/self/exe", "sleep")
		if cmd.Start() != nil {
			break
		}
		defer cmd.Process.Kill()
		started++
	}
	fmt.Println(started)
}

// eat touches n bytes of memory and prints when it has done so.
func eat(n int64) {
	b := make([]byte, n)
	for i := range b {
		if i%4096 == 0 {
			b[i] = 1
		}
	}
	fmt.Println("eaten", len(b))
}
