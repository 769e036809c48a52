// Package bucketurl has the form of the URLs of buckets.
package bucketurl

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Schemes of URLs.
const (
	File = "file"
	S3   = "s3"
)

// parameters are the parameters of S3 in gocloud.dev. Others are refused, as they might be credentials, which would be in logs.
var parameters = []string{
	"accelerate", "anonymous", "awssdk", "disable_https", "dualstack", "endpoint", "fips", "hostname_immutable", "kmskeyid", "profile", "rate_limiter_capacity",
	"region", "request_checksum_calculation", "response_checksum_validation", "role", "s3ForcePathStyle", "ssetype", "use_path_style",
}

// Parse returns the URL of a bucket: file:///directory, or s3://bucket/prefix with parameters. The text of an error begins
// with "must" or "has".
func Parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return nil, errors.New("must be like s3://bucket/prefix?region=eu-central-1 or file:///directory")
	}
	switch {
	case u.User != nil:
		return nil, errors.New("must have no credentials: they come from the environment, ~/.aws or the machine's role")
	case u.Scheme == S3 && hasCredentials(u.Query()):
		return nil, fmt.Errorf("must have no credentials and no other parameters than %s", strings.Join(parameters, ", "))
	case u.Fragment != "":
		return nil, errors.New("must have no fragment")
	case u.Scheme == File && (u.Host != "" || !path.IsAbs(u.Path) || path.Clean(u.Path) == "/" || u.RawQuery != ""):
		return nil, errors.New("must be file:// and the absolute path of a directory, without parameters")
	case u.Scheme == S3 && u.Host == "":
		return nil, errors.New("must name a bucket: s3://bucket/prefix?region=eu-central-1")
	case u.Scheme != File && u.Scheme != S3:
		return nil, fmt.Errorf("has the scheme %q; file and s3 are supported, and other services through their S3 interface: s3://bucket?endpoint=https://…", u.Scheme)
	}
	return u, nil
}

// hasCredentials reports whether parameters may have credentials.
func hasCredentials(q url.Values) bool {
	for name := range q {
		if !slices.Contains(parameters, name) {
			return true
		}
	}
	endpoint, err := url.Parse(q.Get("endpoint"))
	return err != nil || endpoint.User != nil
}
