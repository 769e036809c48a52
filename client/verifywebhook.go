package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// webhookTolerance is the difference between the clocks of the server and the receiver that
// VerifyWebhook permits.
const webhookTolerance = 5 * time.Minute

// ErrWebhook is in the errors of [VerifyWebhook].
var ErrWebhook = errors.New("the request is not a valid delivery of a webhook")

// WebhookMessage is a delivery as the receiver gets it.
type WebhookMessage struct {
	// ID is the same when a delivery comes again; ignore the ids that you know.
	ID   string `json:"-"`
	Type string `json:"type"` // of the event; "ping" for a test
	// Timestamp is the time of the event.
	Timestamp time.Time `json:"timestamp"`
	Event     Event     `json:"data"` // without fields for a test
}

// VerifyWebhook checks the signature and the time of a delivery and returns its content. Pass the body
// exactly as it came. Several secrets may be valid, during a rotation. Every other request is an error
// that wraps [ErrWebhook]; answer it with status 400 or 401.
//
// Signatures follow the Standard Webhooks scheme, v1.
func VerifyWebhook(header http.Header, body []byte, secrets ...string) (*WebhookMessage, error) {
	id, stamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	if id == "" || stamp == "" || header.Get("webhook-signature") == "" {
		return nil, fmt.Errorf("%w: the header webhook-id, webhook-timestamp or webhook-signature is missing", ErrWebhook)
	}
	sent, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: webhook-timestamp is not a number", ErrWebhook)
	}
	if off := time.Since(time.Unix(sent, 0)).Abs(); off > webhookTolerance {
		return nil, fmt.Errorf("%w: webhook-timestamp is more than %s from this machine's time", ErrWebhook, webhookTolerance)
	}
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) == 0 {
			return nil, errors.New("a secret is not one of a webhook: whsec_ and base64") // without the text
		}
		if !signed(header.Get("webhook-signature"), key, id, stamp, body) {
			continue
		}
		m := &WebhookMessage{ID: id}
		if err := json.Unmarshal(body, m); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrWebhook, err)
		}
		return m, nil
	}
	return nil, fmt.Errorf("%w: no signature is by this secret", ErrWebhook)
}

// signed reports whether one of the signatures is by a key.
func signed(signatures string, key []byte, id, stamp string, body []byte) bool {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.", id, stamp)
	mac.Write(body)
	want := mac.Sum(nil)
	for text := range strings.FieldsSeq(signatures) {
		version, signature, _ := strings.Cut(text, ",")
		got, err := base64.StdEncoding.DecodeString(signature)
		if version == "v1" && err == nil && hmac.Equal(got, want) {
			return true
		}
	}
	return false
}
