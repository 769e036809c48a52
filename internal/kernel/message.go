package kernel

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// delimiter separates the addresses of a Jupyter message from its parts.
const delimiter = "<IDS|MSG>"

// header identifies a Jupyter message.
type header struct {
	ID       string `json:"msg_id"`
	Session  string `json:"session"`
	Username string `json:"username"`
	Date     string `json:"date"`
	Type     string `json:"msg_type"`
	Version  string `json:"version"`
}

// message is a received Jupyter message.
type message struct {
	header  header
	parent  string // the ID of the message that caused it
	content json.RawMessage
}

// signer signs and checks messages.
type signer struct{ key []byte }

func (s signer) sign(parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	for _, p := range parts {
		mac.Write(p)
	}
	return []byte(hex.EncodeToString(mac.Sum(nil)))
}

// request returns the frames of a new message and its ID.
func (s signer) request(session, kind string, content any) (id string, frames [][]byte, err error) {
	id = rand.Text()
	h, err := json.Marshal(header{
		ID: id, Session: session, Username: "modbox", Date: time.Now().UTC().Format(time.RFC3339Nano), Type: kind, Version: "5.3",
	})
	if err != nil {
		return "", nil, err
	}
	body, err := json.Marshal(content)
	if err != nil {
		return "", nil, err
	}
	empty := []byte("{}")
	return id, [][]byte{[]byte(delimiter), s.sign(h, empty, empty, body), h, empty, empty, body}, nil
}

// errMessage is for a message that does not follow Jupyter's protocol, or has a wrong signature.
var errMessage = errors.New("not a valid Jupyter message")

// parse checks the frames of a message and returns it.
func (s signer) parse(frames [][]byte) (message, error) {
	start := slices.IndexFunc(frames, func(f []byte) bool { return string(f) == delimiter }) + 1
	if start == 0 || len(frames) < start+5 {
		return message{}, errMessage
	}
	parts := frames[start+1 : start+5]
	if slices.ContainsFunc(parts, func(p []byte) bool { return p == nil }) {
		return message{}, errMessage // one was too large
	}
	if !hmac.Equal(frames[start], s.sign(parts...)) {
		return message{}, errMessage
	}
	var m message
	var parent header
	if json.Unmarshal(parts[0], &m.header) != nil || json.Unmarshal(parts[1], &parent) != nil {
		return message{}, errMessage
	}
	m.parent, m.content = parent.ID, parts[3]
	return m, nil
}
