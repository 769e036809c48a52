package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"runtime"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"github.com/modbox/modbox/internal/sandbox"
)

// Parameters of the password hash: the memory and time that each guess costs an attacker who has
// the database. Hashes contain their parameters, so that these can be raised later.
const (
	argonMemory  = 19 << 10 // KiB
	argonTime    = 2
	argonThreads = 1
	argonKey     = 32
	argonSalt    = 16
	// argonAtOnce bounds the memory that concurrent sign-ins use. They use at most half of the
	// CPUs, so that sandboxes are not slowed down.
	argonAtOnce = 4
	argonFormat = "$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s"

	passwordMin = 8   // characters
	passwordMax = 256 // bytes
)

// passwords hashes and checks passwords, a few at a time and fairly by client address. Safe for
// concurrent use.
type passwords struct {
	places *semaphore
	// decoy is a hash that no password matches: checking against it makes unknown users take as
	// long as known users do.
	decoy string
}

func newPasswords() *passwords {
	p := &passwords{places: newSemaphore(max(1, min(argonAtOnce, runtime.GOMAXPROCS(0)/2)))}
	p.decoy = encode(make([]byte, argonSalt), make([]byte, argonKey))
	return p
}

func checkPassword(field, password string) error {
	switch {
	case utf8.RuneCountInString(password) < passwordMin:
		return sandbox.InvalidField(field, "must have at least %d characters", passwordMin)
	case len(password) > passwordMax:
		return sandbox.InvalidField(field, "must have at most %d bytes", passwordMax)
	}
	return nil
}

// hash returns the form of a password to store. It waits for its turn in the queue of a group of
// addresses. Errors: QuotaExceeded and Unavailable when too many wait, and the context's.
func (p *passwords) hash(ctx context.Context, group, password string) (string, error) {
	if err := p.places.acquire(ctx, group); err != nil {
		return "", err
	}
	defer p.places.release()
	salt := make([]byte, argonSalt)
	_, _ = rand.Read(salt) // never fails: crypto/rand aborts the program instead
	return encode(salt, argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonThreads, argonKey)), nil
}

// matches reports whether the password matches the stored hash. Nothing matches the stored hash "",
// and finding out takes as long. It waits as hash does, with the same errors.
func (p *passwords) matches(ctx context.Context, group, stored, password string) (bool, error) {
	known := stored != ""
	if !known {
		stored = p.decoy
	}
	var version int
	var memory, time uint32
	var threads uint8
	fields := strings.Split(stored, "$")
	if len(fields) != 6 || fields[1] != "argon2id" {
		return false, fmt.Errorf("a stored password has an unknown form")
	}
	_, err := fmt.Sscanf(fields[2]+" "+fields[3], "v=%d m=%d,t=%d,p=%d", &version, &memory, &time, &threads)
	salt, saltErr := base64.RawStdEncoding.DecodeString(fields[4])
	want, keyErr := base64.RawStdEncoding.DecodeString(fields[5])
	if err != nil || saltErr != nil || keyErr != nil || version != argon2.Version {
		return false, fmt.Errorf("a stored password is damaged")
	}
	if err := p.places.acquire(ctx, group); err != nil {
		return false, err
	}
	defer p.places.release()
	got := argon2.IDKey([]byte(password), salt, time, memory, threads, uint32(len(want)))
	return subtle.ConstantTimeCompare(want, got) == 1 && known, nil
}

func encode(salt, key []byte) string {
	e := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf(argonFormat, argon2.Version, argonMemory, argonTime, argonThreads, e(salt), e(key))
}
