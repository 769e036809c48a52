package secret

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// MAC returns the authentication code of a message for a purpose (HMAC-SHA256, with
// a key that is derived for the purpose), and the id of the key. Codes of one purpose
// are none of another.
func (k *Keys) MAC(purpose, message string) (keyID string, mac []byte, err error) {
	keys, err := k.load()
	if err != nil {
		return "", nil, err
	}
	mac, err = keys[0].mac(purpose, message)
	return keys[0].id, mac, err
}

// CheckMAC reports whether mac is the result of MAC for the message with that key, in a time that
// does not depend on how much of it is right. It returns false when the key no longer exists.
func (k *Keys) CheckMAC(purpose, message, keyID string, mac []byte) (bool, error) {
	keys, err := k.load()
	if err != nil {
		return false, err
	}
	for _, key := range keys {
		if key.id == keyID {
			want, err := key.mac(purpose, message)
			return err == nil && hmac.Equal(want, mac), err
		}
	}
	return false, nil
}

func (k *key) mac(purpose, message string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(k.text)
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w", k.id, err)
	}
	derived, err := hkdf.Key(sha256.New, raw, nil, "modbox mac\x00"+purpose, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive key %s: %w", k.id, err)
	}
	h := hmac.New(sha256.New, derived)
	_, _ = h.Write([]byte(message)) // never fails
	return h.Sum(nil), nil
}
