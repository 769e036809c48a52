package config

import (
	"time"

	"github.com/modbox/modbox/internal/object/bucketurl"
)

// Backup configures periodic backups; docs/backup.md describes their content.
type Backup struct {
	Every     Duration `yaml:"every" doc:"Interval of automatic backups of the server's state. 0: never; \"modbox backup\" makes one at any time."`
	Directory string   `yaml:"directory" doc:"Directory of backups. Should be on another disk than state_dir. Empty: state_dir/backups."`
	URL       string   `yaml:"url" doc:"Bucket of automatic backups and of \"modbox backup create\", instead of backup.directory: s3://bucket/prefix?region=…, azblob://container/prefix?storage_account=… or file:///directory. Backups there share equal data."`
	KeyFile   string   `yaml:"key_file" doc:"File with the key that encrypts backups in a bucket: 32 random bytes in base64. Keep a copy elsewhere: without it they cannot be restored. Empty: they are not encrypted."`
	Keep      int      `yaml:"keep" doc:"Number of backups to keep in backup.directory or in the bucket; the server removes older backups with a name given by the server or \"modbox backup\". 0: all."`
	Images    string   `yaml:"images" doc:"Images in a backup: needed (images of snapshots, and of live sandboxes and their checkpoints), all, or none."`
}

// Archive configures archived sandboxes; docs/operate/archive.md describes them.
type Archive struct {
	URL     string   `yaml:"url" doc:"Bucket of archived sandboxes: s3://bucket/prefix?region=…, azblob://container/prefix?storage_account=… or file:///directory. It may be the bucket of backup.url. Empty: no sandbox can be archived."`
	KeyFile string   `yaml:"key_file" doc:"File with the key that encrypts archived sandboxes: 32 random bytes in base64. Keep a copy elsewhere: without it they are lost. Empty: backup.key_file."`
	After   Duration `yaml:"after" doc:"Time for which a sandbox is paused until the server archives it, with archive.url. 0: never; \"modbox archive\" archives one at any time."`
	Copies  bool     `yaml:"copies" doc:"Whether the server also copies the state of each paused sandbox, and all checkpoints, to the bucket of archive.url and keeps the local files, so that a server that takes over without the state directory can resume and restore them (docs/operate/archive.md#copies)."`
	Output  bool     `yaml:"output" doc:"Whether the server also stores the output of ended executions in the bucket of archive.url, so that a server that takes over without the state directory can return it (docs/operate/archive.md#output-of-executions)."`
	Images  bool     `yaml:"images" doc:"Whether the server also stores snapshots, built and imported images and the root filesystems of archived and copied sandboxes in the bucket of archive.url, so that a server that takes over without the state directory has them (docs/operate/archive.md#images)."`
	Grace   Duration `yaml:"grace" doc:"Time for which the state of an archived sandbox stays in the bucket after the sandbox was resumed or has ended, and an image after its removal. A backup of the database that is older finds no such state."`
}

func (c *Config) validateBackup(bad func(name, format string, args ...any)) {
	if c.Backup.Every != 0 && c.Database.URL != "" {
		bad("backup.every", "the server makes no backups of PostgreSQL; use pg_dump (docs/operate/postgresql.md)")
	}
	if c.Backup.Every != 0 {
		within(bad, "backup.every", c.Backup.Every, Duration(time.Minute), Duration(10*365*24*time.Hour))
	}
	if c.Backup.URL != "" {
		if _, err := bucketurl.Parse(c.Backup.URL); err != nil {
			bad("backup.url", "it %v", err)
		}
	}
	within(bad, "backup.keep", c.Backup.Keep, 0, 1<<20)
	oneOf(bad, "backup.images", c.Backup.Images, "needed", "all", "none")
}

func (c *Config) validateArchive(bad func(name, format string, args ...any)) {
	if c.Archive.URL != "" {
		if _, err := bucketurl.Parse(c.Archive.URL); err != nil {
			bad("archive.url", "it %v", err)
		}
	}
	if c.Archive.URL != "" && c.Archive.URL == c.Backup.URL && c.Archive.KeyFile != c.Backup.KeyFile {
		bad("archive.key_file", "it must be backup.key_file, because archive.url and backup.url are the same bucket")
	}
	if c.Archive.After != 0 {
		within(bad, "archive.after", c.Archive.After, Duration(time.Minute), Duration(10*365*24*time.Hour))
	}
	within(bad, "archive.grace", c.Archive.Grace, 0, Duration(10*365*24*time.Hour))
}
