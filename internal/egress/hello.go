package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/net/http/httpguts"
)

const (
	// maxHello bounds the beginning of a connection that is read to find the name that it asks for.
	maxHello = 32 << 10
	// maxBlanks bounds the blanks before a request, maxWord the part of its first word that counts until the
	// line ends, and maxRecords the records of a hello. They are read again with each part that arrives.
	maxBlanks  = 1 << 10
	maxWord    = 1 << 10
	maxRecords = 512
	// maxMethod bounds the methods with characters that HTTP does not allow in a method. Some servers accept these.
	maxMethod = 64
	// blanks separate the words of a request for some server of HTTP.
	blanks = " \t\v\f\r\x1c\x1d\x1e\x1f"
)

var (
	// errShort means that the beginning of a connection is incomplete.
	errShort = errors.New("incomplete")
	// errLine means that the first line of a request is incomplete, and that only its end decides.
	errLine = fmt.Errorf("the first line is %w", errShort)
	// errHeader means that the header of a request is incomplete. Its first line is complete.
	errHeader = fmt.Errorf("the header is %w", errShort)
	// errNameless means that a connection speaks a protocol in which it must name its host, and does not.
	errNameless = errors.New("it does not name a host")
)

// shortBy means that a beginning is incomplete by at least a number of bytes.
type shortBy int

// Error implements error.
func (shortBy) Error() string { return errShort.Error() }

// Is makes it an errShort.
func (shortBy) Is(target error) bool { return target == errShort }

// checkedConn is the sandbox's side of a connection that only a name allows. It reads the beginning of
// what the sandbox sends: a connection that begins with TLS or HTTP must ask for allowed names, and
// on the ports 443 and 80 it must begin with these. Until then it passes on nothing with which a
// server of these protocols could do anything. A server that speaks first is not hindered.
type checkedConn struct {
	*guestConn
	port uint16
	// allow returns an error for a name that is not allowed.
	allow func(name string) error
	// refused notes the reason of a refusal.
	refused func(error)
	begin   []byte // the beginning so far
	passed  int    // bytes of begin that were passed on
	least   int    // the least length of a whole beginning, as far as it is known
	last    error  // the last reason to read more
	done    bool   // the beginning is allowed
}

// Read implements net.Conn.
func (c *checkedConn) Read(b []byte) (int, error) {
	for !c.done && c.passed == len(c.begin) {
		if err := c.check(b); err != nil {
			if errors.Is(err, errRefused) {
				c.refused(err)
			}
			return 0, err
		}
	}
	if c.passed < len(c.begin) {
		n := copy(b, c.begin[c.passed:])
		c.passed += n
		return n, nil
	}
	c.begin = nil
	c.passed = 0
	return c.guestConn.Read(b)
}

// check reads by way of buf until some of the beginning can be passed on. Errors: of the connection;
// errRefused in the chain.
func (c *checkedConn) check(buf []byte) error {
	buf = buf[:min(len(buf), 4<<10)] // so that the beginning does not get much longer than maxHello
	for {
		n, err := c.guestConn.Read(buf)
		if err != nil && (!errors.Is(err, io.EOF) || c.passed == len(c.begin)+n) {
			return err
		}
		names, nameErr := c.add(buf[:n])
		if errors.Is(nameErr, errShort) && err == nil && len(c.begin) < maxHello {
			if !errors.Is(nameErr, errHeader) && mayPass(c.begin, c.port) {
				return nil
			}
			continue
		}
		if nameErr != nil {
			return fmt.Errorf("%w: a connection to port %d, which only a name allows: %w", errRefused, c.port, nameErr)
		}
		for _, name := range names {
			if err := c.allow(name); err != nil {
				return err
			}
		}
		c.done = true
		return nil
	}
}

// add adds a part to the beginning, and returns what askedNames does. It reads the beginning again only if the
// part can decide, so that many small parts cost about as much as a large part.
func (c *checkedConn) add(part []byte) ([]string, error) {
	before := len(c.begin)
	c.begin = append(c.begin, part...)
	switch {
	case len(c.begin) < c.least,
		errors.Is(c.last, errLine) && !bytes.Contains(part, []byte("\n")),
		errors.Is(c.last, errHeader) && !endsHeader(c.begin[max(0, before-2):]):
		return nil, c.last
	}
	names, err := askedNames(c.begin, c.port)
	c.last = err
	if by, ok := err.(shortBy); ok {
		c.least = len(c.begin) + int(by)
	}
	return names, err
}

// mayPass reports whether an incomplete beginning can be passed on: text without the end of its first
// line, to which a server of HTTP does not answer yet, and for which a server of another protocol may
// wait.
func mayPass(begin []byte, port uint16) bool {
	return port != 443 && port != 80 && !isRecord(begin) && !bytes.Contains(bytes.TrimLeft(begin, blanks+"\n"), []byte("\n"))
}

// askedNames returns the names of hosts that the beginning of a connection asks for, none for a
// protocol other than TLS and HTTP. Errors: errShort if more must be read; errNameless; others for a
// beginning that is malformed or not what the port is for.
func askedNames(begin []byte, port uint16) ([]string, error) {
	if len(begin) == 0 {
		return nil, errShort
	}
	switch {
	case port != 443 && isRecord(begin) && len(begin) < knownRecord:
		return nil, errShort
	case isRecord(begin):
		name, err := serverName(begin)
		return []string{name}, err
	case port == 443:
		return nil, errors.New("it does not begin with TLS")
	case isOldHello(begin):
		if len(begin) < oldHello {
			return nil, errShort
		}
		return nil, errNameless
	}
	request := bytes.TrimLeft(begin, blanks+"\n") // servers ignore them before a request
	if len(begin)-len(request) > maxBlanks {
		return nil, errors.New("it begins with too many blanks")
	}
	names, isHTTP, err := hosts(request)
	if err == nil && !isHTTP && port == 80 {
		return nil, errors.New("it does not begin with HTTP/1")
	}
	return names, err
}

const (
	recordAlert     = 21
	recordHandshake = 22
	clientHello     = 1
	extServerName   = 0
	typeHostName    = 0
	typeNumberBytes = 4 // of a handshake message, with its length
	alertWarning    = 1
	alertFatal      = 2
	knownRecord     = 6 // the bytes that tell a record of TLS
	oldHello        = 4 // the bytes that tell a hello of SSL 2
)

// isRecord reports whether a server of TLS may read a beginning, as far as it is known, as a record. Some
// servers ignore warnings and empty records before the hello, and some accept versions that do not exist.
// A message of another protocol can begin with its length like a record of TLS, but differs in a later byte.
func isRecord(b []byte) bool {
	kind := b[0]
	switch {
	case kind != recordAlert && kind != recordHandshake, len(b) > 1 && b[1] >= 0x10:
		return false
	case len(b) < knownRecord:
		return true
	case b[3]|b[4] == 0: // the next record follows
		return b[5] == recordAlert || b[5] == recordHandshake
	case kind == recordAlert:
		return b[5] == alertWarning || b[5] == alertFatal
	}
	return b[5] == clientHello
}

// isOldHello reports whether a beginning, as far as it is known, is a hello in the form of SSL 2, which some
// servers of TLS accept. It cannot name a host.
func isOldHello(begin []byte) bool {
	return begin[0]&0x80 != 0 && (len(begin) < 3 || begin[2] == clientHello) && (len(begin) < oldHello || begin[3] == 3)
}

// serverName returns the name in the first message of TLS (SNI).
func serverName(b []byte) (string, error) {
	var message []byte
	for range maxRecords {
		if len(b) >= 2 && (b[0] != recordHandshake || b[1] != 3) {
			return "", errors.New("malformed TLS")
		}
		if len(b) < 5 {
			return "", shortBy(5 - len(b))
		}
		n := int(b[3])<<8 | int(b[4])
		if n == 0 {
			return "", errors.New("malformed TLS")
		}
		whole := len(b) >= 5+n
		if part := b[5:min(5+n, len(b))]; message == nil {
			message = slices.Clip(part)
		} else {
			message = append(message, part...)
		}
		want := typeNumberBytes
		if len(message) >= typeNumberBytes {
			if message[0] != clientHello {
				return "", errors.New("malformed TLS")
			}
			want += int(message[1])<<16 | int(message[2])<<8 | int(message[3])
			if len(message) >= want {
				return helloName(message[typeNumberBytes:want])
			}
		}
		if !whole {
			return "", shortBy(min(5+n-len(b), want-len(message)))
		}
		b = b[5+n:]
	}
	return "", errors.New("malformed TLS")
}

// helloName returns the name in the body of a ClientHello.
func helloName(body []byte) (string, error) {
	malformed := errors.New("malformed TLS")
	s := cryptobyte.String(body)
	var session, suites, compressions, extensions cryptobyte.String
	if !s.Skip(2+32) || !s.ReadUint8LengthPrefixed(&session) || !s.ReadUint16LengthPrefixed(&suites) || !s.ReadUint8LengthPrefixed(&compressions) {
		return "", malformed
	}
	if s.Empty() {
		return "", errNameless
	}
	if !s.ReadUint16LengthPrefixed(&extensions) || !s.Empty() {
		return "", malformed
	}
	name := ""
	for !extensions.Empty() {
		var kind uint16
		var data, list, host cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&data) {
			return "", malformed
		}
		if kind != extServerName {
			continue
		}
		var nameType uint8
		if name != "" || !data.ReadUint16LengthPrefixed(&list) || !data.Empty() || !list.ReadUint8(&nameType) || nameType != typeHostName ||
			!list.ReadUint16LengthPrefixed(&host) || !list.Empty() || host.Empty() {
			return "", malformed
		}
		name = string(host)
	}
	if name == "" {
		return "", errNameless
	}
	return name, nil
}

// hosts returns the hosts that the first request of HTTP/1 names, and reports whether there is one.
// Requests without a version and with versions that only some servers accept count as well.
func hosts(b []byte) (names []string, isHTTP bool, err error) {
	line, rest, ended := bytes.Cut(b, []byte("\n"))
	if !ended {
		return nil, false, unended(line)
	}
	parts := strings.FieldsFunc(string(line), func(r rune) bool { return strings.ContainsRune(blanks, r) })
	switch {
	case slices.Equal(parts, []string{"PRI", "*", "HTTP/2.0"}):
		return nil, false, nil
	// A request of the protocol of Git can have two such words, and always has a zero byte.
	case len(parts) == 2 && bytes.IndexByte(line, 0) < 0 && (strings.HasPrefix(parts[1], "/") || strings.Contains(parts[1], "://")):
		return nil, true, errNameless
	case len(parts) < 2 || !slices.ContainsFunc(parts[1:], isVersion):
		return nil, false, nil
	}
	if !endsHeader(b[len(line):]) {
		return nil, true, errHeader
	}
	header, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(rest))).ReadMIMEHeader()
	if err != nil {
		return nil, true, errors.New("malformed HTTP")
	}
	named := header.Values("Host")
	// Requests of RTSP, and CONNECT of some clients, name the host only in the target.
	inTarget := parts[0] == "CONNECT" || strings.HasPrefix(strings.ToLower(parts[1]), "rtsp://")
	if len(named) > 1 || len(named) == 0 && !inTarget {
		return nil, true, errNameless
	}
	// A server may use the host of the target instead, so that host must be allowed as well.
	if target := parts[1]; parts[0] == "CONNECT" {
		named = append(named, target)
	} else if !strings.HasPrefix(target, "/") && target != "*" {
		u, err := url.Parse(target)
		if err != nil || u.Host == "" {
			return nil, true, errors.New("malformed HTTP")
		}
		named = append(named, u.Host)
	}
	for _, host := range named {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		names = append(names, host)
	}
	return names, true, nil
}

// unended returns the reason to read more of a first line that has not ended, nil if no request begins with it.
func unended(line []byte) error {
	word := line[:min(len(line), maxWord)]
	space := bytes.IndexAny(word, blanks)
	if space >= 0 {
		word = word[:space]
	}
	switch {
	case bytes.ContainsFunc(word, func(r rune) bool { return r < ' ' || r > '~' }),
		len(word) > maxMethod && bytes.ContainsFunc(word, func(r rune) bool { return !httpguts.IsTokenRune(r) }):
		return nil
	case space < 0 && len(word) < maxWord:
		return errShort
	}
	return errLine
}

// isVersion reports whether a word of a request is the version of a protocol that servers of HTTP read.
func isVersion(word string) bool {
	protocol, _, found := strings.Cut(strings.ToUpper(word), "/")
	return found && (protocol == "HTTP" || protocol == "RTSP" || protocol == "ICE")
}

// endsHeader reports whether text contains the end of a header: an empty line, with the end of the line before it.
func endsHeader(b []byte) bool {
	return bytes.Contains(b, []byte("\n\n")) || bytes.Contains(b, []byte("\n\r\n"))
}
