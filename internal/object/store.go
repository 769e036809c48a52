package object

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	awsretry "github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/cenkalti/backoff/v5"
	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcerrors"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/object/bucketurl"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// ChunkBytes is the size of the blobs of a file, except the last.
	ChunkBytes = 4 << 20
	// MaxBlob bounds a blob.
	MaxBlob = ChunkBytes
	// MaxNamed bounds an object with a name chosen by the caller.
	MaxNamed = 256 << 20

	blobsPrefix = "blobs/"
	configKey   = "store.json"
	// format is the format of a store, and formatArchives of a store with the states of archived sandboxes: earlier versions
	// would take their blobs for unused.
	format         = 1
	formatArchives = 2

	// patience is the default of Options.Patience: more than two attempts to send a blob.
	patience = 2 * time.Minute
	// answer and slowest bound an attempt of a request, for a bucket that does not answer: slowest is in bytes per second.
	answer  = 20 * time.Second
	slowest = 128 << 10
)

// Options are options of a store.
type Options struct {
	// Key encrypts the objects; nil for no encryption. A bucket is always used with the key of its first use.
	Key *Key
	// Create makes a missing directory, and the store in an empty bucket. Without it, Open refuses a bucket without a store.
	Create bool
	// Archives says that the store has, or will have, states of archived sandboxes.
	Archives bool
	// Patience is how long a request to a bucket that cannot be reached, or that has failed, is repeated; 0 means two minutes.
	Patience time.Duration

	answer time.Duration        // of tests; 0 for the constant
	now    func() time.Duration // of tests; nil for the time since the machine booted
}

// Store is a store of objects in a bucket. It is safe for concurrent use, also by several processes.
type Store struct {
	url    string // for errors
	bucket *blob.Bucket
	dir    string // of a local bucket, else ""
	codec  *codec
	o      Options
	slots  chan struct{} // bounds blobs in memory that are read
	// zeroName returns the name of a chunk of zeros.
	zeroName func() Name
}

// OpenWithKeyFile is Open with the key in a file; "" for no encryption. Errors: also of [ReadKey].
func OpenWithKeyFile(ctx context.Context, url, file string, o Options) (*Store, error) {
	if file != "" {
		key, err := ReadKey(file)
		if err != nil {
			return nil, err
		}
		o.Key = key
	}
	return Open(ctx, url, o)
}

// Open opens the store in the bucket at a URL: file:///directory; s3://bucket/prefix with the parameters of
// gocloud.dev/blob/s3blob, such as region, endpoint and use_path_style; or azblob://container/prefix with the parameters of
// gocloud.dev/blob/azureblob, such as storage_account. The credentials for S3 and Azure come from the
// environment, as for other programs.
//
// Errors: Invalid for a bad URL; NotFound when the bucket has no store and Create is not set; Forbidden when the store has
// another key; Unavailable when the bucket does not answer.
func Open(ctx context.Context, text string, o Options) (*Store, error) {
	u, err := bucketurl.Parse(text)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the bucket's URL %v", err)
	}
	if o.Patience == 0 {
		o.Patience = patience
	}
	if o.answer == 0 {
		o.answer = answer
	}
	if o.now == nil {
		o.now = sinceBoot
	}
	s := &Store{url: u.Scheme + "://" + u.Host + u.Path, o: o, slots: make(chan struct{}, parallel)}
	if s.codec, err = newCodec(o.Key); err != nil {
		return nil, err
	}
	s.zeroName = sync.OnceValue(func() Name { return s.codec.name(make([]byte, ChunkBytes)) })
	switch u.Scheme {
	case bucketurl.File:
		s.dir = path.Clean(u.Path)
		if o.Create {
			if err := durable.MkdirAll(s.dir); err != nil {
				return nil, fmt.Errorf("bucket: %w", err)
			}
		}
		if real, err := filepath.EvalSymlinks(s.dir); err == nil {
			s.dir = real // a list does not follow links
		}
		// Temporary files beside the objects can be renamed to them on every file system.
		s.bucket, err = fileblob.OpenBucket(s.dir, &fileblob.Options{NoTempDir: true, Metadata: fileblob.MetadataDontWrite, DirFileMode: 0o700})
	case bucketurl.Azure:
		s.bucket, err = openAzure(ctx, u)
	default:
		s.bucket, err = openS3(ctx, u)
	}
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "open the bucket %s", s.url)
	}
	if err := s.check(ctx); err != nil {
		return nil, errors.Join(err, s.bucket.Close())
	}
	return s, nil
}

// checksumParameter says which answers the library for S3 compares with their checksums.
const checksumParameter = "response_checksum_validation"

func openS3(ctx context.Context, u *url.URL) (*blob.Bucket, error) {
	changed := *u
	u = &changed
	if q := u.Query(); !q.Has(checksumParameter) {
		q.Set(checksumParameter, "when_required") // content is compared with its digest anyway
		u.RawQuery = q.Encode()
	}
	b, err := new(s3blob.URLOpener).OpenBucketURL(ctx, u)
	if err != nil {
		return nil, err
	}
	return below(b, u), nil
}

func openAzure(ctx context.Context, u *url.URL) (*blob.Bucket, error) {
	opener := azureblob.URLOpener{MakeClient: azureblob.NewDefaultClient, ServiceURLOptions: *azureblob.NewDefaultServiceURLOptions()}
	b, err := opener.OpenBucketURL(ctx, u)
	if err != nil {
		return nil, err
	}
	return below(b, u), nil
}

// below returns the part of a bucket below the prefix of its URL.
func below(b *blob.Bucket, u *url.URL) *blob.Bucket {
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		return blob.PrefixedBucket(b, prefix+"/")
	}
	return b
}

// Close ends the use of the store.
func (s *Store) Close() error { return s.bucket.Close() }

// URL returns the bucket's URL without its parameters.
func (s *Store) URL() string { return s.url }

// config is the content of store.json.
type config struct {
	Format int `json:"format"`
	// Key identifies the key of the objects; "" when they are not encrypted.
	Key string `json:"key,omitempty"`
}

// check compares the store's format and key with ours, and makes the store.
func (s *Store) check(ctx context.Context) error {
	ours := config{Format: format, Key: s.codec.keyID}
	if s.o.Archives {
		ours.Format = formatArchives
	}
	data, err := s.read(ctx, configKey, 1<<10)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		if !s.o.Create {
			return sandbox.Errorf(sandbox.NotFound, "there is nothing of Modbox in the bucket %s", s.url)
		}
		if err := s.writeConfig(ctx, ours); err != nil {
			return err
		}
		// Another process may have made the store with another key at the same time.
		data, err = s.read(ctx, configKey, 1<<10)
		if err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	var c config
	if err := json.Unmarshal(data, &c); err != nil {
		return sandbox.Wrap(sandbox.Invalid, err, "the object %s of the bucket %s is damaged", configKey, s.url)
	}
	switch {
	case c.Format < format || c.Format > formatArchives:
		return sandbox.Errorf(sandbox.Unsupported, "the bucket %s is of format %d, this program supports %d to %d", s.url, c.Format, format, formatArchives)
	case c.Key != "" && s.o.Key == nil:
		return sandbox.Errorf(sandbox.Forbidden, "the bucket %s is encrypted, and no key file is set (backup.key_file)", s.url)
	case c.Key == "" && s.o.Key != nil:
		return sandbox.Errorf(sandbox.Forbidden, "the bucket %s is not encrypted, and a key file is set (backup.key_file); use another bucket or prefix for encrypted objects", s.url)
	case c.Key != s.codec.keyID:
		return sandbox.Errorf(sandbox.Forbidden, "the bucket %s is encrypted with another key than the key file has", s.url)
	case c.Format < ours.Format:
		return s.writeConfig(ctx, ours)
	}
	return nil
}

// writeConfig writes the store's format and key.
func (s *Store) writeConfig(ctx context.Context, c config) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return s.write(ctx, configKey, text)
}

// Put stores an object under a name that the caller has chosen, and replaces its content.
func (s *Store) Put(ctx context.Context, key string, data []byte) error {
	body, err := s.codec.encode(key, data)
	if err != nil {
		return err
	}
	return s.write(ctx, key, body)
}

// Get returns an object that Put has stored. Errors: NotFound; Invalid when it is damaged.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	return s.get(ctx, key, MaxNamed)
}

// get returns the content of an object of at most limit bytes.
func (s *Store) get(ctx context.Context, key string, limit int) ([]byte, error) {
	body, err := s.read(ctx, key, limit+limit/8+1<<10)
	if err != nil {
		return nil, err
	}
	data, err := s.codec.decode(key, body, limit)
	if err != nil {
		return nil, s.damaged(key, err)
	}
	return data, nil
}

func (s *Store) damaged(key string, err error) error {
	return sandbox.Wrap(sandbox.Invalid, err, "the object %s of the bucket %s is damaged", key, s.url)
}

// Object is an object in a bucket.
type Object struct {
	Key  string
	Size int64     // in the bucket
	At   time.Time // of its last write, by the clock of the bucket
}

// List calls f with the objects whose names begin with prefix, in the order of the names, until f fails.
func (s *Store) List(ctx context.Context, prefix string, f func(Object) error) error {
	if s.dir != "" {
		return s.walk(ctx, prefix, f)
	}
	after := ""
	for token := blob.FirstPageToken; len(token) > 0; {
		var page []*blob.ListObject
		err := s.try(ctx, "list "+prefix, 0, func(ctx context.Context) (err error) {
			var next []byte
			if page, next, err = s.bucket.ListPage(ctx, token, 1000, &blob.ListOptions{Prefix: prefix}); err == nil {
				token = next
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, o := range page {
			if o.Key <= after { // a page that was asked for twice
				continue
			}
			after = o.Key
			if err := f(Object{Key: o.Key, Size: o.Size, At: o.ModTime}); err != nil {
				return err
			}
		}
	}
	return nil
}

// walk is List in a local bucket. A directory that cannot be read is an error: the driver would skip it, and a collection would
// take the blobs of the backups in it for unused.
func (s *Store) walk(ctx context.Context, prefix string, f func(Object) error) error {
	root := filepath.Join(s.dir, path.Dir(prefix+"x"))
	return filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case name == root && errors.Is(err, fs.ErrNotExist):
			// No object has the prefix, if the bucket is there.
			_, err = os.Lstat(filepath.Join(s.dir, configKey))
		case err == nil && name == root && !d.IsDir():
			err = errors.New("it is not a directory")
		}
		if err != nil {
			return fmt.Errorf("list %s in the bucket %s: %s: %w", prefix, s.url, name, err)
		}
		if d == nil || d.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(s.dir, name)
		if key := filepath.ToSlash(rel); err != nil || !strings.HasPrefix(key, prefix) {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) { // renamed or removed meanwhile
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %s in the bucket %s: %w", prefix, s.url, err)
		}
		return f(Object{Key: filepath.ToSlash(rel), Size: info.Size(), At: info.ModTime()})
	})
}

// Delete deletes an object; it may be missing.
func (s *Store) Delete(ctx context.Context, key string) error {
	err := s.try(ctx, "delete "+key, 0, func(ctx context.Context) error { return s.bucket.Delete(ctx, key) })
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	return err
}

// Flush brings what was written to a local bucket to the disk; other buckets have it there already.
func (s *Store) Flush() error {
	if s.dir == "" {
		return nil
	}
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}

// read returns the bytes of an object, at most limit.
func (s *Store) read(ctx context.Context, key string, limit int) (data []byte, err error) {
	err = s.try(ctx, "read "+key, limit, func(ctx context.Context) error {
		r, err := s.bucket.NewReader(ctx, key, nil)
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }() // it was only read
		if r.Size() > int64(limit) {
			return s.damaged(key, fmt.Errorf("it has %d bytes, more than %d", r.Size(), limit))
		}
		data, err = io.ReadAll(io.LimitReader(r, int64(limit)))
		return err
	})
	return data, err
}

// write writes the bytes of an object: after a crash it has its old content or the new.
func (s *Store) write(ctx context.Context, key string, body []byte) error {
	return s.try(ctx, "write "+key, len(body), func(ctx context.Context) error {
		o := &blob.WriterOptions{ContentType: "application/octet-stream"}
		if s.dir == "" {
			return s.bucket.Upload(ctx, key, bytes.NewReader(body), o)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var f *os.File
		o.BeforeWrite = func(as func(any) bool) error {
			if !as(&f) {
				return errors.New("the bucket has no file")
			}
			return f.Chmod(0o600)
		}
		w, err := s.bucket.NewWriter(ctx, key, o)
		if err != nil {
			return err
		}
		if _, err = w.Write(body); err == nil {
			err = f.Sync() // before it is renamed: an object is whole, also after a loss of power
		}
		if err != nil {
			cancel() // Close then removes the file
			_ = w.Close()
			return err
		}
		return w.Close()
	})
}

// try repeats a request to the bucket that a later attempt can succeed with, and gives its error a code. size bounds the bytes of the object.
func (s *Store) try(ctx context.Context, what string, size int, f func(ctx context.Context) error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := s.attempt(ctx, size, f)
		if err != nil && (s.dir != "" || !transient(err)) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, retry.Pauses(200*time.Millisecond, 10*time.Second), backoff.WithMaxElapsedTime(s.o.Patience))
	if err == nil {
		return nil
	}
	var coded *sandbox.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &coded):
		return err
	case gcerrors.Code(err) == gcerrors.NotFound:
		return sandbox.Wrap(sandbox.NotFound, err, "%s in the bucket %s: it does not exist", what, s.url)
	case slices.Contains([]int{http.StatusForbidden, http.StatusUnauthorized}, status(err)):
		return sandbox.Wrap(sandbox.Forbidden, err, "%s in the bucket %s: the credentials do not permit it", what, s.url)
	case s.dir != "":
		return fmt.Errorf("%s in the bucket %s: %w", what, s.url, err)
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "%s in the bucket %s", what, s.url)
}

// attempt calls f with a limit of time.
func (s *Store) attempt(ctx context.Context, size int, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.answer+time.Duration(size)*time.Second/slowest)
	defer cancel()
	return f(policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})) // of the library for Azure, which waits for long: try repeats
}

// status returns the HTTP status with which a service has refused a request; 0 for none.
func status(err error) int {
	var s3 *awshttp.ResponseError
	var azure *azcore.ResponseError
	switch {
	case errors.As(err, &s3):
		return s3.HTTPStatusCode()
	case errors.As(err, &azure):
		return azure.StatusCode
	}
	return 0
}

// transient reports whether a later attempt of a request to a service can succeed.
func transient(err error) bool {
	switch status(err) {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return awsretry.IsErrorRetryables(awsretry.DefaultRetryables).IsErrorRetryable(err).Bool() ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.ErrUnexpectedEOF)
}
