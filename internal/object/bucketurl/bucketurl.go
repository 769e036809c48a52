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
	File  = "file"
	S3    = "s3"
	Azure = "azblob"
)

// parameters are the parameters of each service in gocloud.dev. Others are refused, as they might be credentials, which would be in logs.
var parameters = map[string][]string{
	S3: {
		"accelerate", "anonymous", "awssdk", "disable_https", "dualstack", "endpoint", "fips", "hostname_immutable", "kmskeyid", "profile", "rate_limiter_capacity",
		"region", "request_checksum_calculation", "response_checksum_validation", "role", "s3ForcePathStyle", "ssetype", "use_path_style",
	},
	Azure: {"domain", "localemu", "protocol", "storage_account"},
}

// Parse returns the URL of a bucket: file:///directory, s3://bucket/prefix or azblob://container/prefix, the last two with parameters. The text of an error begins
// with "must" or "has".
func Parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return nil, errors.New("must be like s3://bucket/prefix?region=eu-central-1, azblob://container/prefix?storage_account=name or file:///directory")
	}
	switch {
	case u.User != nil:
		return nil, errors.New("must have no credentials: they come from the environment, ~/.aws or the machine's role")
	case parameters[u.Scheme] != nil && hasCredentials(u.Query(), parameters[u.Scheme]):
		return nil, fmt.Errorf("must have no credentials and no other parameters than %s", strings.Join(parameters[u.Scheme], ", "))
	case u.Fragment != "":
		return nil, errors.New("must have no fragment")
	case u.Scheme == File && (u.Host != "" || !path.IsAbs(u.Path) || path.Clean(u.Path) == "/" || u.RawQuery != ""):
		return nil, errors.New("must be file:// and the absolute path of a directory, without parameters")
	case u.Scheme == S3 && u.Host == "":
		return nil, errors.New("must name a bucket: s3://bucket/prefix?region=eu-central-1")
	case u.Scheme == Azure && u.Host == "":
		return nil, errors.New("must name a container: azblob://container/prefix?storage_account=name")
	case u.Scheme != File && parameters[u.Scheme] == nil:
		return nil, fmt.Errorf("has the scheme %q; file, s3 and azblob are supported, and other services through their S3 interface: s3://bucket?endpoint=https://…", u.Scheme)
	}
	return u, nil
}

// hasCredentials reports whether parameters may have credentials. known are the parameters that have none.
func hasCredentials(q url.Values, known []string) bool {
	for name := range q {
		if !slices.Contains(known, name) {
			return true
		}
	}
	endpoint, err := url.Parse(q.Get("endpoint"))
	return err != nil || endpoint.User != nil || strings.ContainsAny(q.Get("domain"), "@/?")
}
