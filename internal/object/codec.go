package object

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const keyBytes = 32

// Key encrypts the objects of a store.
type Key [keyBytes]byte

// ReadKey reads a key from a file: 32 random bytes in base64.
func ReadKey(file string) (*Key, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 || info.Size() > 1<<10 {
		return nil, fmt.Errorf("read the key: %s must be a small file that only its owner can read (chmod 600)", file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", err)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(raw) != keyBytes {
		return nil, fmt.Errorf("read the key: %s has not %d bytes in base64; make a key with: head -c %d /dev/urandom | base64", file, keyBytes, keyBytes) // without the text: it is a secret
	}
	return (*Key)(raw), nil
}

// codec translates between content and the bytes in the bucket: compressed, and encrypted if there is a key.
type codec struct {
	key     *Key
	keyID   string // "" without a key
	nameKey []byte
	// EncodeAll and DecodeAll are safe for concurrent use.
	zip                    *zstd.Encoder
	unzipBlob, unzipObject *zstd.Decoder // of limited memory
}

func newCodec(key *Key) (*codec, error) {
	c := &codec{key: key}
	var err error
	if c.zip, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(parallel), zstd.WithEncoderCRC(true)); err != nil {
		return nil, err
	}
	decoder := func(limit uint64) (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(parallel), zstd.WithDecoderMaxMemory(limit))
	}
	if c.unzipBlob, err = decoder(MaxBlob); err != nil {
		return nil, err
	}
	if c.unzipObject, err = decoder(MaxNamed); err != nil || key == nil {
		return c, err
	}
	if c.nameKey, err = hkdf.Key(sha256.New, key[:], nil, "modbox object names", keyBytes); err != nil {
		return nil, err
	}
	id, err := hkdf.Key(sha256.New, key[:], nil, "modbox object key id", 8)
	c.keyID = hex.EncodeToString(id)
	return c, err
}

// name returns the name of a blob.
func (c *codec) name(data []byte) Name {
	if c.key == nil {
		return sha256.Sum256(data)
	}
	h := hmac.New(sha256.New, c.nameKey)
	h.Write(data)
	return Name(h.Sum(nil))
}

// encode returns the bytes of an object with its name.
func (c *codec) encode(key string, data []byte) ([]byte, error) {
	body := c.zip.EncodeAll(data, make([]byte, 0, len(data)/2+1<<10))
	if c.key == nil {
		return body, nil
	}
	aead, err := c.aead(key)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, body, []byte(key)), nil
}

// decode returns the content of an object, of at most limit bytes: MaxBlob or MaxNamed.
func (c *codec) decode(key string, body []byte, limit int) ([]byte, error) {
	if c.key != nil {
		aead, err := c.aead(key)
		if err != nil {
			return nil, err
		}
		if body, err = aead.Open(nil, nil, body, []byte(key)); err != nil {
			return nil, errors.New("it was changed, or encrypted with another key")
		}
	}
	if len(body) == 0 { // would be the compressed form of nothing
		return nil, errors.New("it is empty")
	}
	if limit == MaxBlob {
		return c.unzipBlob.DecodeAll(body, nil)
	}
	return c.unzipObject.DecodeAll(body, nil)
}

// aead returns the cipher of an object. Its key is only used for objects with that name, and each message has a random nonce.
func (c *codec) aead(key string) (cipher.AEAD, error) {
	derived, err := hkdf.Key(sha256.New, c.key[:], nil, "modbox object "+key, keyBytes)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
