package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// state has everything that a process can have: memory, a clock, a file that was removed, a server,
// and a connection. It prints its port and answers each connection with a line:
//
//	NAME COUNT UNIXTIME RANDOM ERROR
//
// NAME is chosen at the beginning, COUNT goes up all the time, RANDOM is new each time, and ERROR
// says what stopped working, or "ok".
func state() {
	name := rand.Text()
	var count atomic.Int64
	go func() {
		for {
			count.Add(1)
			time.Sleep(time.Millisecond)
		}
	}()
	file, err := os.CreateTemp("", "removed")
	if err != nil {
		fail(err)
	}
	if _, err := io.WriteString(file, name); err != nil {
		fail(err)
	}
	if err := os.Remove(file.Name()); err != nil {
		fail(err)
	}
	conn, err := loopback()
	if err != nil {
		fail(err)
	}
	serve(func(c *net.TCPConn) {
		works := "ok"
		if err := errors.Join(checkFile(file, name), checkConn(conn, name)); err != nil {
			works = err.Error()
		}
		random := make([]byte, 16)
		if f, err := os.Open("/dev/urandom"); err != nil {
			works = err.Error()
		} else {
			_, _ = io.ReadFull(f, random)
			f.Close()
		}
		fmt.Fprintf(c, "%s %d %d %x %s\n", name, count.Load(), time.Now().Unix(), random, works)
	})
}

// loopback returns a connection that echoes everything.
func loopback() (net.Conn, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	other, err := l.Accept()
	if err != nil {
		return nil, err
	}
	go io.Copy(other, other)
	return conn, nil
}

func checkFile(f *os.File, want string) error {
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != want {
		return fmt.Errorf("the removed file holds %q: %v", got, err) //nolint:errorlint // it may be nil
	}
	return nil
}

func checkConn(c net.Conn, want string) error {
	got := make([]byte, len(want))
	if _, err := io.WriteString(c, want); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		return fmt.Errorf("the connection brought %q: %v", got, err) //nolint:errorlint // it may be nil
	}
	return nil
}
