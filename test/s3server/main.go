// Command s3server is an S3 server for tests: the server of versitygw, with the objects in a directory. The versitygw
// command itself also has the storage of other services, which takes long to build.
//
//	s3server ADDRESS DIRECTORY
//
// Each directory in DIRECTORY/buckets is a bucket. The credentials are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "s3server:", err)
		os.Exit(1)
	}
}

func run(address, dir string) error {
	attributes, err := meta.NewSideCar(filepath.Join(dir, "attributes")) // not every file system has extended attributes
	if err != nil {
		return err
	}
	buckets := filepath.Join(dir, "buckets")
	storage, err := posix.New(buckets, attributes, posix.PosixOpts{SideCarDir: filepath.Join(dir, "attributes"), Concurrency: 100})
	if err != nil {
		return err
	}
	defer storage.Shutdown()
	return embedgw.RunVersityGW(context.Background(), storage, &embedgw.Config{
		RootUserAccess: os.Getenv("AWS_ACCESS_KEY_ID"), RootUserSecret: os.Getenv("AWS_SECRET_ACCESS_KEY"), Region: "us-east-1",
		Ports: []string{address}, MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 1000, KeepAlive: true, Quiet: true,
	})
}
